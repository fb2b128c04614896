"""What a policy decides: who leaves the gpu, what a recall leaves, what a full tier gives up.

A policy chooses; it never touches a page. The planner asks, with orders that already leave out
whatever may not go. Each policy is one file and one line in `policy/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Reversible
from itertools import islice
from typing import ClassVar

from kvtier.pages import Page


class Policy:
    """The choices of exclusive tiers with an LRU order; others change what they need.

    Orders are given from the coldest to the hottest. `give_up` may give fewer than asked.
    """

    name: ClassVar[str] = "exclusive"
    keeps_shadow: ClassVar[bool] = False
    """Whether a recall leaves its host replica as a shadow."""
    touches_shadows: ClassVar[bool] = False
    """Whether the last unpin of a page moves its shadow to the end of the reclaim order."""

    writes_through: ClassVar[bool] = False
    """Whether pages are copied to the host at use, and leave the gpu without a copy."""

    def name_keys(self, keys: Iterable[Hashable]) -> None:
        """Take note that a request names these keys."""

    def is_worth_a_copy(self, key: Hashable) -> bool:
        """Say whether a page that is used is to be written through."""
        del key
        return self.writes_through

    def forget(self) -> None:
        """Forget what was learnt of keys (a reset)."""

    def victims(self, candidates: Iterable[Page], count: int) -> list[Page]:
        """Choose the pages that leave the gpu: the coldest."""
        return list(islice(candidates, count))

    def shadow_order(self, recalled: list[Page]) -> list[Page]:
        """Say in which order the shadows of one recall (head first) enter the reclaim order."""
        return recalled

    def give_up(
        self, count: int, shadows: Reversible[Page], pages: Reversible[Page], *, pages_count: int
    ) -> tuple[list[Page], list[Page]]:
        """Choose what a full tier gives up: shadows to reclaim and pages that leave it.

        `shadows` come in reclaim order, oldest first, `pages` coldest first; `pages_count` says how
        many pages there are. A page that leaves goes to its colder replica, or is dropped.
        """
        del pages_count
        gone = list(islice(iter(shadows), count))
        return gone, list(islice(iter(pages), count - len(gone)))
