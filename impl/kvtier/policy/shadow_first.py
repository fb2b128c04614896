"""`shadow_first`: shadows go first, so that keeping them never costs a hit (theorem T1).

Shadows then only use slots that are free under exclusive paging. Which of them goes first is the
choice of the classes: the oldest recall, the latest, or the one whose page was used on the gpu last
(that page leaves the gpu last, so its shadow is needed last).
"""

from __future__ import annotations

from collections.abc import Reversible
from itertools import islice
from typing import ClassVar

from kvtier.pages import Page
from kvtier.policy.base import Policy


class ShadowFirst(Policy):
    """Inclusive; reclaims the oldest shadows, then gives up the coldest pages."""

    name: ClassVar[str] = "shadow_first"
    keeps_shadow: ClassVar[bool] = True


class LatestShadowFirst(ShadowFirst):
    """Inclusive; reclaims the latest shadows first: for a tier behind the host."""

    name: ClassVar[str] = "latest_shadow_first"

    def give_up(
        self, count: int, shadows: Reversible[Page], pages: Reversible[Page], *, pages_count: int
    ) -> tuple[list[Page], list[Page]]:
        """Reclaim from the hot end of the reclaim order."""
        del pages_count
        gone = list(islice(reversed(shadows), count))
        return gone, list(islice(iter(pages), count - len(gone)))


class ShadowFirstHottest(LatestShadowFirst):
    """Inclusive; reclaims the shadows of the hottest pages first."""

    name: ClassVar[str] = "shadow_first_hottest"
    touches_shadows: ClassVar[bool] = True

    def shadow_order(self, recalled: list[Page]) -> list[Page]:
        """Enter tail first: the head of a prompt is hotter than its tail."""
        return recalled[::-1]
