"""Room on the tiers behind the gpu: what can be had there now, later, and by giving up what.

Now: free slots, shadows, and primaries that may leave (`Queues` says which: clean ones go to their
colder replica, others are dropped). So the number is a sum of three lengths. A copy to a fallible
tier is never part of it: such a tier is never on the path of an allocation.

Later: what there will be once all that runs has ended, and all that can be written down was. It
tells `Busy` from `OutOfSlots`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvtier.order import Order
from kvtier.pages import GPU, HOST, Flight, Page
from kvtier.policy import Policy
from kvtier.queues import EVICTABLE
from kvtier.slots import SlotPool
from kvtier_spec import SlotState


class View(Protocol):
    """What planning may look at: pools and orders, by tier and group."""

    @property
    def pools(self) -> Sequence[Sequence[SlotPool]]:
        """Slots."""

    @property
    def evictable(self) -> Sequence[Sequence[Order]]:
        """Pages that may leave their tier, coldest first."""

    @property
    def reclaimable(self) -> Sequence[Sequence[Order]]:
        """Shadows that may be given up."""

    @property
    def held(self) -> Sequence[Sequence[Collection[Page]]]:
        """Held pages, by the tier of their primary; known where there are fallible tiers."""

    @property
    def unclean(self) -> Sequence[Sequence[Order]]:
        """Pages without a colder replica, above a fallible tier."""

    @property
    def policies(self) -> Sequence[Policy]:
        """Who chooses, by tier."""

    @property
    def flights(self) -> Mapping[int, Flight]:
        """What is under way, by ticket."""


Keep = Callable[[Page], bool]
"""Says of a page that it must stay."""


def nobody(_: Page) -> bool:
    """Keep no page."""
    return False


class Candidates:
    """An order without the pages to keep: what a policy may choose from, in both directions."""

    __slots__ = ("_keep", "_order")

    def __init__(self, order: Order, keep: Keep) -> None:
        self._order, self._keep = order, keep

    def __iter__(self) -> Iterator[Page]:
        keep = self._keep
        return (page for page in self._order if not keep(page))

    def __reversed__(self) -> Iterator[Page]:
        keep = self._keep
        return (page for page in reversed(self._order) if not keep(page))


@dataclass(slots=True)
class Room:
    """What a tier gives up for new slots: shadows, clean primaries, and pages altogether."""

    reclaim: list[Page] = field(default_factory=list)
    sink: list[Page] = field(default_factory=list)
    drop: list[Page] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """Count the slots that come free."""
        return len(self.reclaim) + len(self.sink) + len(self.drop)


def spare(view: View, tier: int, group: int, staying: Collection[Page] = ()) -> int:
    """Count the slots of a tier behind the gpu that are free or can be given up now.

    `staying` are pages that must not leave it.
    """
    standing = len(view.reclaimable[tier][group]) + len(view.evictable[tier][group])
    kept = sum(1 for page in staying if page.places[tier] == EVICTABLE)
    return view.pools[tier][group].free + standing - kept


def make_room(
    view: View,
    tier: int,
    group: int,
    needed: int,
    *,
    keeping: Keep = nobody,
    staying: Collection[Page] = (),
) -> Room:
    """Choose what a tier gives up for `needed` slots, free ones first; it may be fewer.

    Shadows of pages that are to keep are not reclaimed; pages that stay do not leave.
    """
    short = needed - view.pools[tier][group].free
    if short <= 0:
        return Room()
    order = view.evictable[tier][group]
    kept = sum(1 for page in staying if page.places[tier] == EVICTABLE)
    reclaim, leave = view.policies[tier].give_up(
        short,
        Candidates(view.reclaimable[tier][group], keeping),
        Candidates(order, staying.__contains__),
        pages_count=len(order) - kept,
    )
    return Room(
        reclaim,
        [page for page in leave if page.is_valid_below(tier)],
        [page for page in leave if not page.is_valid_below(tier)],
    )


def later(view: View, group: int, staying: Collection[Page]) -> tuple[int, int]:
    """Say how many held pages could come down from the gpu once all has ended that runs.

    Shadows and unheld pages go, so what counts is that every held page has a slot at its tier or
    below. Gives the sum over all tiers, and how many the host takes at once.
    """
    host = _slots_later(view, HOST, group, staying)
    total = sum(
        _slots_later(view, tier, group, staying) - _held(view, tier, group, staying)
        for tier in range(HOST, len(view.pools))
    )
    return total, host


def _slots_later(view: View, tier: int, group: int, staying: Collection[Page]) -> int:
    """Count the slots of a tier but for those that pages keep which must stay there."""
    counts = view.pools[tier][group].counts()
    kept = sum(1 for page in staying if page.slots[tier] is not None and page.primary == tier)
    return sum(counts.values()) - counts[SlotState.RETIRING] - kept


def _held(view: View, tier: int, group: int, staying: Collection[Page]) -> int:
    """Count the held pages that will have their warmest replica on a tier."""
    kept = sum(1 for page in staying if page.held_at == tier)
    rising = [
        (flight.target, page)
        for flight in view.flights.values()
        if flight.group == group and flight.target < flight.source
        for page in flight.pages
        if (page.held_at or GPU) > flight.target and page not in staying
    ]
    comes = sum(1 for target, page in rising if target == tier != page.held_at)
    leaves = sum(1 for target, page in rising if target != tier == page.held_at)
    return len(view.held[tier][group]) - kept - leaves + comes


def quarantined(view: View, tier: int, group: int) -> int:
    """Count the slots in quarantine."""
    return view.pools[tier][group].counts()[SlotState.QUARANTINED]
