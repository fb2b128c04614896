"""Documents say what is true: their Python runs, their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvtier_spec import GPU_HOST, render

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(ROOT / "spec").glob("*.md"), *(ROOT / "impl").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_of_a_page_runs(page: Path) -> None:
    """All Python blocks of a page run, one after the other, in one namespace."""
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        if "import torch" in block:
            pytest.importorskip("torch", reason="torch comes with the extra 'test'")
        exec(compile(block, str(page), "exec"), namespace)  # noqa: S102 - our own documents


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    """Relative links of a page name files of this repository."""
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_picture_of_the_readme_is_the_tables() -> None:
    """The diagram in the README is what the table draws today."""
    assert render.mermaid(GPU_HOST) in (ROOT / "README.md").read_text()
