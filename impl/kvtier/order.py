"""Pages from cold to hot, with the exact places that an LRU order needs.

Three things move a page: it is pushed to the hot end, it is removed, or it is *parked*: taken out
for a while (held, with nowhere to go) and later put back exactly where it stood, because looking a
page up must reorder nothing. Places are stamps of a clock; parked pages come back into a small
sorted list that is merged at reading, and into the others when it grows to an eighth of them.
Everything else is one ordered dictionary.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvtier.pages import Page


MANY = 256
"""Returned pages that are kept apart at least before they are merged into the others."""


class Order:
    """An order of pages; iterate it from the coldest to the hottest."""

    __slots__ = ("_back", "_clock", "_main", "_parked", "_returned")

    def __init__(self) -> None:
        self._main: OrderedDict[Page, int] = OrderedDict()
        self._returned: dict[Page, int] = {}
        self._back: list[tuple[int, int, Page]] = []
        """The returned pages, sorted by place."""
        self._parked: dict[Page, int] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._main) + len(self._back)

    def __contains__(self, page: Page) -> bool:
        return page in self._main or page in self._returned

    def __iter__(self) -> Iterator[Page]:
        if not self._back:
            return iter(self._main)
        return self._merged()

    def __reversed__(self) -> Iterator[Page]:
        if not self._back:
            return reversed(self._main)
        return reversed(list(self._merged()))

    @property
    def parked(self) -> Collection[Page]:
        """The pages that are taken out for a while."""
        return self._parked.keys()

    def push(self, page: Page) -> None:
        """Put a new page at the hot end."""
        self._clock += 1
        self._main[page] = self._clock

    def reserve(self, page: Page) -> None:
        """Give a page that may not stand here yet the place at the hot end, parked."""
        self._clock += 1
        self._parked[page] = self._clock

    def renew(self, pages: Iterable[Page]) -> None:
        """Move pages to the hot end, the last one hottest; a parked page gets its place there."""
        for page in pages:
            if page in self._parked:
                self.reserve(page)
            else:
                self.remove(page)
                self.push(page)

    def remove(self, page: Page) -> int:
        """Take a page out and forget its place (it is returned)."""
        stamp = self._main.pop(page, None)
        if stamp is None:
            stamp = self._returned.pop(page)
            del self._back[bisect_left(self._back, (stamp, page.id))]
        return stamp

    def park(self, page: Page) -> None:
        """Take a page out and remember its place."""
        self._parked[page] = self.remove(page)

    def unpark(self, page: Page) -> None:
        """Put a parked page back where it stood."""
        stamp = self._returned[page] = self._parked.pop(page)
        insort(self._back, (stamp, page.id, page))
        if len(self._back) > max(MANY, len(self._main) >> 3):
            self._main = OrderedDict((page, stamp) for stamp, _, page in self._entries())
            self._returned, self._back = {}, []

    def forget(self, page: Page) -> None:
        """Forget the place of a parked page that will not come back to it."""
        del self._parked[page]

    def _merged(self) -> Iterator[Page]:
        return (page for _, _, page in self._entries())

    def _entries(self) -> Iterator[tuple[int, int, Page]]:
        main = ((stamp, page.id, page) for page, stamp in self._main.items())
        return merge(main, self._back)
