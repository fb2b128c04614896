"""The ledger: slots, pages, queues and keys, and the few verbs that change them.

Whoever changes a page (`store.py` for users and plans, `flights.py` for what comes and goes over
fallible tiers) does it through these: slots are set and given, pages vanish, queues are derived
anew, and what happened is written to the journal. Nothing else assigns a slot or a queue.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from kvtier.journal import Journal
from kvtier.order import Order
from kvtier.pages import Flight, Page
from kvtier.policy import Policy
from kvtier.queues import Queues
from kvtier.slots import SlotPool, Slots
from kvtier.submissions import slots_of
from kvtier_spec import Chain, Kind, Phase, Record


@dataclass(slots=True)
class Ledger:
    """Pools and queues by tier and group; keys and live pages by group; flights by ticket."""

    chain: Chain
    pools: list[list[SlotPool]]
    policies: list[Policy]
    """By tier; that of the gpu and that of the host are one."""
    journal: Journal
    queues: Queues = field(init=False)
    found: list[dict[Hashable, Page]] = field(init=False)
    pages: list[dict[int, Page]] = field(init=False)
    flights: dict[int, Flight] = field(default_factory=dict)

    def __post_init__(self) -> None:
        groups = range(len(self.pools[0]))
        self.queues = Queues(self.chain, len(groups))
        self.found = [{} for _ in groups]
        self.pages = [{} for _ in groups]

    @property
    def evictable(self) -> list[list[Order]]:
        """Primaries that may leave their tier now, by tier and group."""
        return self.queues.evictable

    @property
    def reclaimable(self) -> list[list[Order]]:
        """Shadows, by tier and group."""
        return self.queues.reclaimable

    @property
    def held(self) -> list[list[dict[Page, None]]]:
        """Held pages by the tier of their primary and group; empty without fallible tiers."""
        return self.queues.held

    @property
    def unclean(self) -> list[list[Order]]:
        """Primaries that the cleaner may write down, by tier and group."""
        return self.queues.unclean

    def set(self, pages: Sequence[Page], tier: int, slots: Slots) -> None:
        """Enter the slots of pages on one tier."""
        for page, slot in zip(pages, slots.tolist(), strict=True):
            assert page.slots[tier] is None, f"{page} has a slot on tier {tier} already"
            page.slots[tier] = slot

    def give(self, pages: Sequence[Page], tier: int) -> None:
        """Give the slots of pages on one tier back."""
        if not pages:
            return
        self.pools[tier][pages[0].group].give(slots_of(pages, tier))
        for page in pages:
            page.slots[tier] = None

    def vanish(self, pages: Sequence[Page]) -> list[Record]:
        """Let pages go with all their replicas and users; give the records that say so.

        A page in flight is doomed: its flight keeps both slots until it ends.
        """
        doomed = [page for page in pages if page.flight is not None]
        for page in doomed:
            flight = page.flight
            assert flight is not None
            source = page.slots[flight.source]
            assert source is not None, f"{page} flies from a tier where it has no slot"
            flight.doomed[page], page.slots[flight.source] = source, None
        self.remove(pages)
        dropped = [page for page in pages if page.flight is None]
        return [Record(Kind.DROP, ids(dropped)), Record(Kind.DOOM, ids(doomed))]

    def remove(self, pages: Sequence[Page]) -> None:
        """Take pages out of every queue and index; what slots they still list are given back."""
        if not pages:
            return
        group = pages[0].group
        for tier in range(len(self.pools)):
            self.give([page for page in pages if page.slots[tier] is not None], tier)
        for page in pages:
            page.pins = page.holds = page.awaited = 0
            if page.phase is Phase.COMMITTED:
                del self.found[group][page.key]
            del self.pages[group][page.id]
        self.queues.reconcile(pages)

    def emit(self, records: list[Record], pages: Sequence[Page]) -> None:
        """Write records about pages of one group as a batch."""
        if pages:
            for record in records:
                record.group = pages[0].group
            self.journal.emit(records)


def ids(pages: Iterable[Page]) -> list[int]:
    """Name pages for the journal."""
    return [page.id for page in pages]
