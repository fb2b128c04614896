"""The longest prefix that can be used: every group has what *it* needs there (I10).

Full attention needs a page of every block, a sliding window those of the last `w` blocks, a state
the last one alone. So a prefix that one group cannot use may be followed by a longer one that all
can: the answer is searched from the long end, with the length of the unbroken run that ends at each
block.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvtier.config import Group
from kvtier.pages import Page

Found = Sequence[Page | None]
"""The pages of one group, by block; None where there is none."""


def longest(groups: Sequence[Group], found: Sequence[Found]) -> int:
    """Say how many blocks from the start every group can use."""
    limit = min(len(pages) for pages in found)
    runs = []
    for group, pages in zip(groups, found, strict=True):
        if group.window is None:
            limit = next((at for at in range(limit) if pages[at] is None), limit)
        else:
            runs.append((group.window, _runs(pages)))
    while limit and any(run[limit - 1] < min(window, limit) for window, run in runs):
        limit -= 1
    return limit


def _runs(pages: Found) -> list[int]:
    """Say for each block how many blocks in a row, up to it, have a page."""
    found, length = [], 0
    for page in pages:
        length = 0 if page is None else length + 1
        found.append(length)
    return found
