"""What a ledger says of itself: a snapshot in the spec's words, and counts for people.

The snapshot is what the audit invariants compare with the world that the journal describes. It is
read from the queues themselves, not from what pages believe of them, so that a page that stands
nowhere, or twice, is seen.
"""

from __future__ import annotations

from kvtier.ledger import Ledger
from kvtier.order import Order
from kvtier.pages import Page
from kvtier.stats import TierStats
from kvtier_spec import Chain, SlotState, Snapshot


def snapshot(ledger: Ledger, group: int) -> Snapshot:
    """Say what the runtime believes of one group."""
    pages = ledger.pages[group].values()
    return Snapshot(
        pools=tuple(pools[group].states() for pools in ledger.pools),
        replicas={page.id: _slots(page) for page in pages} | _doomed(ledger, group),
        pins={page.id: page.pins for page in pages},
        holds={page.id: page.holds for page in pages},
        evictable=tuple(_standing(orders[group]) for orders in ledger.evictable),
        reclaimable=tuple(_standing(orders[group]) for orders in ledger.reclaimable),
        found={key: page.id for key, page in ledger.found[group].items()},
    )


def _slots(page: Page) -> tuple[int | None, ...]:
    """List a page's slots, one that is being filled among them."""
    slots = list(page.slots)
    if page.flight is not None:
        slots[page.flight.target] = page.filling
    return tuple(slots)


def _doomed(ledger: Ledger, group: int) -> dict[int, tuple[int | None, ...]]:
    """List the slots that flights own for pages that nobody has any more."""
    found = {}
    for flight in ledger.flights.values():
        for page, source in flight.doomed.items() if flight.group == group else ():
            slots: list[int | None] = [None] * len(page.slots)
            slots[flight.source], slots[flight.target] = source, page.filling
            found[page.id] = tuple(slots)
    return found


def _standing(order: Order) -> frozenset[int]:
    ids = [page.id for page in order]
    found = frozenset(ids)
    assert len(found) == len(ids) == len(order), f"I3: a page stands twice in {ids}"
    return found


def tiers(ledger: Ledger, chain: Chain) -> dict[str, TierStats]:
    """Count slots, evictable pages and shadows of each tier, all groups together."""
    found = {}
    for index, tier in enumerate(chain.tiers):
        counts = [pool.counts() for pool in ledger.pools[index]]
        found[tier.name] = TierStats(
            slots={str(state): sum(count[state] for count in counts) for state in SlotState},
            evictable=sum(len(order) for order in ledger.evictable[index]),
            shadows=sum(len(order) for order in ledger.reclaimable[index]),
        )
    return found
