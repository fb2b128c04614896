"""From a demand to a plan: what will be moved, reclaimed and dropped, as data. Touches nothing.

A demand asks, group by group, that some pages be on the gpu and that some new ones be opened, all
or nothing. The answer is a `Plan`, or who is short. A plan has stages, run in this order by the
store: `clear` (book-keeping only: shadows reclaimed, pages dropped, clean pages re-bound to their
shadow), `offload`, `recall` with `open` and `pin`. "No plan exists" means: none with these stages
in this order. Recalling first could free host slots for an offload where gpu slots are free; such a
demand is refused, and met once somebody else has given a page up.

How room is made on the gpu. Victims are unpinned pages outside the demand, coldest first. A held
victim must not be dropped, so it needs a host slot: its own shadow's, or one that the host can
provide. What the host can provide is `spare` = free + shadows + pages that may be dropped, and each
held victim uses one of these whether its slot is its shadow's or another. So at most `spare` held
victims fit, and the walk takes held pages while that budget lasts and unheld ones always: it finds
a batch whenever one exists.

How room is made on the host for the copies of the batch. Shadows of the batch stay (their pages
need no copy). The policy chooses what else the full host gives up. If that is not enough for `k`
slots, the `k` coldest unheld pages of the batch are dropped with all their replicas instead: each
gives a slot or needs none any more. The budget above says that there are so many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvtier.order import Order
from kvtier.pages import Page
from kvtier.policy import Policy
from kvtier.slots import SlotPool
from kvtier_spec import SlotState

GPU, HOST = 0, 1


class View(Protocol):
    """What the planner may look at: pools and orders, by tier and group."""

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
    def policy(self) -> Policy:
        """Who chooses."""


@dataclass(slots=True)
class GroupDemand:
    """Pages of one group to pin on the gpu, and how many to open."""

    pages: list[Page] = field(default_factory=list)
    new: int = 0


@dataclass(slots=True)
class GroupPlan:
    """What one group's demand takes, stage by stage; pages in the order in which they go."""

    reclaim: list[Page] = field(default_factory=list)
    drop: list[Page] = field(default_factory=list)
    rebind: list[Page] = field(default_factory=list)
    offload: list[Page] = field(default_factory=list)
    batch: list[Page] = field(default_factory=list)
    """Re-bound and copied pages in eviction order: how they enter the host order."""
    recall: list[Page] = field(default_factory=list)
    pin: list[Page] = field(default_factory=list)
    new: int = 0


@dataclass(slots=True)
class Plan:
    """One plan for a demand over all groups."""

    groups: list[GroupPlan]

    @property
    def recalled(self) -> int:
        """Count the pages recalled."""
        return sum(len(group.recall) for group in self.groups)

    @property
    def evicted(self) -> int:
        """Count the pages that leave the gpu downwards."""
        return sum(len(group.batch) for group in self.groups)


@dataclass(frozen=True, slots=True)
class Short:
    """A demand that no plan meets now: the tier and group that lack slots.

    `later` is how many will be available once the slots in quarantine have come back.
    """

    tier: int
    group: int
    asked: int
    available: int
    later: int


class Candidates:
    """An order without some pages: what a policy may choose from, in both directions."""

    __slots__ = ("_order", "_without")

    def __init__(self, order: Order, without: Collection[Page]) -> None:
        self._order, self._without = order, without

    def __iter__(self) -> Iterator[Page]:
        without = self._without
        return (page for page in self._order if page not in without)

    def __reversed__(self) -> Iterator[Page]:
        without = self._without
        return (page for page in reversed(self._order) if page not in without)


def plan(view: View, demand: Sequence[GroupDemand]) -> Plan | Short:
    """Plan a demand, all or nothing over the groups; moves no counter."""
    groups = []
    for group, wanted in enumerate(demand):
        found = _plan_group(view, group, wanted)
        if isinstance(found, Short):
            return found
        groups.append(found)
    return Plan(groups)


def _plan_group(view: View, group: int, wanted: GroupDemand) -> GroupPlan | Short:
    recall = [page for page in dict.fromkeys(wanted.pages) if page.slots[GPU] is None]
    found = GroupPlan(recall=recall, pin=wanted.pages, new=wanted.new)
    asked = len(recall) + wanted.new
    short = asked - view.pools[GPU][group].free
    if short <= 0:
        return found
    own = set(wanted.pages)
    victims = view.policy.victims(_may_go(view, group, own, spare(view, group)), short)
    if len(victims) < short:
        later = sum(
            1 for _ in _may_go(view, group, own, spare(view, group) + _aside(view, HOST, group))
        )
        later += view.pools[GPU][group].free + _aside(view, GPU, group)
        return Short(GPU, group, asked, asked - short + len(victims), later)
    _send_down(view, group, victims, found)
    return found


def _aside(view: View, tier: int, group: int) -> int:
    """Count the slots in quarantine."""
    return view.pools[tier][group].counts()[SlotState.QUARANTINED]


def _may_go(view: View, group: int, own: Collection[Page], budget: int) -> Iterator[Page]:
    """Walk the pages that may leave the gpu, coldest first; of held ones as many as the budget."""
    for page in view.evictable[GPU][group]:
        if page in own:
            continue
        if page.holds:
            if not budget:
                continue
            budget -= 1
        yield page


def spare(view: View, group: int) -> int:
    """Count the host slots that are free or can be given up now, shadows included."""
    pool = view.pools[HOST][group]
    return pool.free + len(view.reclaimable[HOST][group]) + len(view.evictable[HOST][group])


def _send_down(view: View, group: int, victims: list[Page], found: GroupPlan) -> None:
    """Decide who of the victims is re-bound, copied or dropped, and what the host gives up."""
    clean = {page for page in victims if page.slots[HOST] is not None}
    needed = len(victims) - len(clean) - view.pools[HOST][group].free
    dropped: set[Page] = set()
    if needed > 0:
        shadows = Candidates(view.reclaimable[HOST][group], clean)
        pages = view.evictable[HOST][group]
        found.reclaim, found.drop = view.policy.give_up(
            needed, shadows, pages, pages_count=len(pages)
        )
        dropped = _coldest_unheld(victims, needed - len(found.reclaim) - len(found.drop))
        found.drop += [page for page in victims if page in dropped]
    found.batch = [page for page in victims if page not in dropped] if dropped else victims
    found.rebind = [page for page in found.batch if page in clean] if clean else []
    found.offload = [page for page in found.batch if page not in clean] if clean else found.batch


def _coldest_unheld(victims: list[Page], count: int) -> set[Page]:
    if count <= 0:
        return set()
    unheld = [page for page in victims if not page.holds][:count]
    assert len(unheld) == count, "the budget of held victims was wrong"
    return set(unheld)


def available(view: View, tier: int, group: int) -> int:
    """Say how many slots of a tier the planner would grant now (I7); O(evictable pages).

    Shadows never make it smaller: they count as free on the host, and below a held page of the gpu
    they are the slot that it needs.
    """
    if tier == HOST:
        return spare(view, group)
    order = view.evictable[GPU][group]
    held = sum(1 for page in order if page.holds)
    return view.pools[GPU][group].free + len(order) - held + min(held, spare(view, group))
