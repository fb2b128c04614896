"""`page_first`: real pages go first, shadows for what those cannot cover (upstream's proposal).

Saves most copies where the host is larger than the working set, and costs hits below that: it
throws real pages out to keep duplicates.
"""

from __future__ import annotations

from collections.abc import Reversible
from itertools import islice
from typing import ClassVar

from kvtier.pages import Page
from kvtier.policy.base import Policy


class PageFirst(Policy):
    """Inclusive; drops the coldest pages, then reclaims the oldest shadows."""

    name: ClassVar[str] = "page_first"
    keeps_shadow: ClassVar[bool] = True

    def give_up(
        self, count: int, shadows: Reversible[Page], pages: Reversible[Page], *, pages_count: int
    ) -> tuple[list[Page], list[Page]]:
        """Drop pages while there are any; reclaim shadows, oldest first, for the rest."""
        gone = list(islice(iter(pages), count))
        short = max(0, count - pages_count)
        return list(islice(iter(shadows), short)), gone
