"""Where each replica stands: one function derives it from the state of its page (I3).

Every tier and group has two orders: primaries that may be evicted, and shadows that may be
reclaimed. Nothing else puts a page into one or takes it out, so that a failed operation cannot
leave a page in the wrong queue: whoever changed a page calls `reconcile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvtier.order import Order
from kvtier.pages import Page

NOWHERE, EVICTABLE, RECLAIMABLE, PARKED = range(4)
"""Where a replica stands: in no queue, in its tier's eviction or reclaim order, or parked (an
evictable primary but for its holders, who leave it nowhere to go; it keeps its place)."""


class Queues:
    """Eviction and reclaim orders, by tier and group."""

    def __init__(self, tiers: int, groups: int) -> None:
        self.evictable = [[Order() for _ in range(groups)] for _ in range(tiers)]
        self.reclaimable = [[Order() for _ in range(groups)] for _ in range(tiers)]

    def reconcile(self, pages: Iterable[Page]) -> None:
        """Put each replica into the queue that its page's state implies (I3).

        The warmest replica is the primary: evictable unless pinned, parked if held on the last
        tier. Colder ones are shadows. Entering a queue is entering at its end; coming back from
        `PARKED` is coming back to the old place.
        """
        last = len(self.evictable) - 1
        for page in pages:
            is_primary = True
            places = page.places
            for tier, slot in enumerate(page.slots):
                if slot is None:
                    place = NOWHERE
                elif is_primary:
                    is_primary = False
                    if page.pins:
                        place = NOWHERE
                    else:
                        place = PARKED if page.holds and tier == last else EVICTABLE
                else:
                    place = RECLAIMABLE
                if place != places[tier]:
                    self._move(page, tier, places[tier], place)
                    places[tier] = place

    def _move(self, page: Page, tier: int, before: int, after: int) -> None:
        order = self.evictable[tier][page.group]
        if before == EVICTABLE:
            if after == PARKED:
                order.park(page)
                return
            order.remove(page)
        elif before == PARKED:
            if after == EVICTABLE:
                order.unpark(page)
                return
            order.forget(page)
        elif before == RECLAIMABLE:
            self.reclaimable[tier][page.group].remove(page)
        if after == EVICTABLE:
            order.push(page)
        elif after == PARKED:
            order.reserve(page)
        elif after == RECLAIMABLE:
            self.reclaimable[tier][page.group].push(page)

    def enter_in_order(self, pages: Sequence[Page], tier: int) -> None:
        """Give pages that have just come to a tier their places anew, in the order given."""
        for page in pages:
            self.evictable[tier][page.group].renew((page,))

    def renew(self, pages: Sequence[Page], tier: int) -> None:
        """Move pages that stand in a tier's eviction order to its hot end, the last hottest."""
        for page in pages:
            if page.places[tier] == EVICTABLE:
                self.evictable[tier][page.group].renew((page,))

    def touch_shadows(self, pages: Sequence[Page]) -> None:
        """Move the shadows of pages that nobody pins any more to the end of the reclaim order."""
        for page in pages:
            if page.pins:
                continue
            for tier, place in enumerate(page.places):
                if place == RECLAIMABLE:
                    self.reclaimable[tier][page.group].renew((page,))
