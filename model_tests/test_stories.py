"""The stories that everybody asks about, as golden logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_tests.story import tell

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_each_story_is_told_as_it_was_written(path: Path, *, rewrites: bool) -> None:
    """What the cache says and journals is what the golden file says."""
    written = path.read_text()

    told = tell(written)

    if rewrites:
        path.write_text(told)
    assert rewrites or told == written
