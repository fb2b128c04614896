"""What a store says of itself: a snapshot in the spec's words, and counts for people.

The snapshot is what the audit invariants compare with the world that the journal describes. It is
read from the queues themselves, not from what pages believe of them, so that a page that stands
nowhere, or twice, is seen.
"""

from __future__ import annotations

from kvtier.order import Order
from kvtier.stats import TierStats
from kvtier.store import Store
from kvtier_spec import Chain, SlotState, Snapshot


def snapshot(store: Store, group: int) -> Snapshot:
    """Say what the runtime believes of one group."""
    pages = store.pages[group].values()
    return Snapshot(
        pools=tuple(pools[group].states() for pools in store.pools),
        replicas={page.id: tuple(page.slots) for page in pages},
        pins={page.id: page.pins for page in pages},
        holds={page.id: page.holds for page in pages},
        evictable=tuple(_standing(orders[group]) for orders in store.evictable),
        reclaimable=tuple(_standing(orders[group]) for orders in store.reclaimable),
        found={key: page.id for key, page in store.found[group].items()},
    )


def _standing(order: Order) -> frozenset[int]:
    ids = [page.id for page in order]
    found = frozenset(ids)
    assert len(found) == len(ids) == len(order), f"I3: a page stands twice in {ids}"
    return found


def tiers(store: Store, chain: Chain) -> dict[str, TierStats]:
    """Count slots, evictable pages and shadows of each tier, all groups together."""
    found = {}
    for index, tier in enumerate(chain.tiers):
        counts = [pool.counts() for pool in store.pools[index]]
        found[tier.name] = TierStats(
            slots={state: sum(count[state] for count in counts) for state in SlotState},
            evictable=sum(len(order) for order in store.evictable[index]),
            shadows=sum(len(order) for order in store.reclaimable[index]),
        )
    return found
