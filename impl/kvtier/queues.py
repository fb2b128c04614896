"""Where each replica stands: one function derives it from the state of its page (I3).

Every tier and group has two orders: primaries that may leave the tier now, and shadows that may be
reclaimed. A tier with a fallible tier below has a third: its primaries without a colder replica,
which the cleaner writes down; and where there are such tiers, the held pages are known by the tier
of their primary. Nothing else puts a page into one or takes it out, so that a failed operation
cannot leave a page in the wrong queue: whoever changed a page calls `reconcile`.

A page that is held, and has neither a colder replica nor an eager copy below, has nowhere to go: it
is parked. So behind the gpu `evictable` means: this slot can be had at once, and the planner counts
it without looking. The alternative, leaving such pages in the order and skipping them, makes every
plan walk over all pages of all suspended sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvtier.order import Order
from kvtier.pages import Page
from kvtier_spec import Chain

NOWHERE, EVICTABLE, RECLAIMABLE, PARKED = range(4)
"""Where a replica stands: in no queue, in its tier's eviction or reclaim order, or parked (an
evictable primary but for its holders, or for a flight that reads it; it keeps its place)."""


class Queues:
    """Eviction, reclaim and cleaning orders, by tier and group."""

    def __init__(self, chain: Chain, groups: int) -> None:
        tiers = range(len(chain))
        self.evictable = [[Order() for _ in range(groups)] for _ in tiers]
        self.reclaimable = [[Order() for _ in range(groups)] for _ in tiers]
        self.unclean = [[Order() for _ in range(groups)] for _ in tiers]
        self.held: list[list[dict[Page, None]]] = [[{} for _ in range(groups)] for _ in tiers]
        below = [tier + 1 < len(chain) for tier in tiers]
        self._has_way = [below[tier] and chain.is_eager(tier, tier + 1) for tier in tiers]
        self._is_cleaned = [below[tier] and not self._has_way[tier] for tier in tiers]
        self._cleans = any(self._is_cleaned)

    def reconcile(self, pages: Iterable[Page]) -> None:
        """Put each replica into the queue that its page's state implies (I3).

        The warmest replica is the primary, colder ones are shadows. Entering a queue is entering at
        its end; coming back from `PARKED` is coming back to the old place.
        """
        has_way = self._has_way
        for page in pages:
            primary = None
            places, flight = page.places, page.flight
            for tier, slot in enumerate(page.slots):
                if slot is None:
                    place = NOWHERE
                elif primary is not None:
                    place = RECLAIMABLE if flight is None or not page.flies_from(tier) else NOWHERE
                else:
                    primary = tier
                    if page.pins:
                        place = NOWHERE
                    elif flight is None and (not page.holds or has_way[tier]):
                        place = EVICTABLE
                    else:
                        place = self._place_of_primary(page, tier)
                if place != places[tier]:
                    self._move(page, tier, places[tier], place)
                    places[tier] = place
            if self._cleans:
                self._reconcile_held(page, primary)
                self._reconcile_unclean(page, primary)

    def _place_of_primary(self, page: Page, tier: int) -> int:
        """Say whether a primary that nobody pins may leave its tier now."""
        if page.flight is not None and page.flight.source == tier:
            return PARKED
        is_stuck = page.holds and not self._has_way[tier] and not page.is_valid_below(tier)
        return PARKED if is_stuck else EVICTABLE

    def _reconcile_held(self, page: Page, primary: int | None) -> None:
        """Know the pages that are held, by the tier of their primary."""
        wanted = primary if page.holds else None
        if wanted == page.held_at:
            return
        if page.held_at is not None:
            del self.held[page.held_at][page.group][page]
        if wanted is not None:
            self.held[wanted][page.group][page] = None
        page.held_at = wanted

    def _reconcile_unclean(self, page: Page, primary: int | None) -> None:
        """Let the cleaner see a primary that has no colder replica, and no flight."""
        wanted = primary
        if primary is not None and (
            not self._is_cleaned[primary] or page.flight or page.is_valid_below(primary)
        ):
            wanted = None
        if wanted == page.unclean:
            return
        if page.unclean is not None:
            self.unclean[page.unclean][page.group].remove(page)
        if wanted is not None:
            self.unclean[wanted][page.group].push(page)
        page.unclean = wanted

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
            if page.unclean == tier:
                self.unclean[tier][page.group].renew((page,))

    def renew(self, pages: Sequence[Page], tier: int) -> None:
        """Move pages that stand in a tier's eviction order to its hot end, the last hottest."""
        for page in pages:
            if page.places[tier] == EVICTABLE:
                self.evictable[tier][page.group].renew((page,))

    def touch_shadows(self, pages: Sequence[Page], tier: int) -> None:
        """Move the shadows of pages that nobody pins any more to the end of the reclaim order."""
        for page in pages:
            if not page.pins and page.places[tier] == RECLAIMABLE:
                self.reclaimable[tier][page.group].renew((page,))
