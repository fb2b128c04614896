"""From a demand to a plan: what will be moved, reclaimed and dropped, as data. Touches nothing.

A demand asks, group by group, that some pages be on the gpu and that some new ones be opened, all
or nothing. The answer is a `Plan`, or who is short. A plan has stages, run in this order by the
store: `clear` (book-keeping only: replicas released, pages dropped), `offload`, `start` (flights),
`recall` with `open` and `pin`. "No plan exists" means: none with these stages in this order.
Recalling first could free host slots for an offload where gpu slots are free; such a demand is
refused, and met once somebody else has given a page up.

How room is made on the gpu. Victims are unpinned pages outside the demand, coldest first. A held
victim must not be dropped, so it needs a host slot: its own shadow's, or one that the host can
provide (`room.spare`), unless a colder replica of it lies behind the host already. The walk takes
held pages that need a slot while that budget lasts, and all others always: it finds a batch
whenever one exists.

How room is made on the host for the copies of the batch. Shadows of the batch stay (their pages
need no copy). The policy chooses what else the full host gives up. If that is not enough for `k`
slots, the `k` coldest pages of the batch go without one: unheld ones are dropped with all their
replicas, held ones sink to the replica that they have behind the host. Each gives a slot or needs
none any more. The budget above says that there are so many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from kvtier.pages import GPU, HOST, Page
from kvtier.room import Room, View, later, make_room, quarantined, spare


@dataclass(slots=True)
class GroupDemand:
    """Pages of one group to pin on the gpu, and how many to open.

    `spares` belong to those who ask, too: they are moved only if nothing else helps.
    """

    pages: list[Page] = field(default_factory=list)
    new: int = 0
    spares: list[Page] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Release:
    """Replicas to release on one tier; as an eviction the warmest ones, else shadows."""

    tier: int
    pages: list[Page]
    is_eviction: bool


@dataclass(frozen=True, slots=True)
class Start:
    """Pages to send on a flight."""

    source: int
    target: int
    pages: list[Page]


@dataclass(slots=True)
class GroupPlan:
    """What a plan does in one group, stage by stage; pages in the order in which they go."""

    releases: list[Release] = field(default_factory=list)
    drop: list[Page] = field(default_factory=list)
    unclean: list[Page] = field(default_factory=list)
    """Those of `drop` that could be written to the tier below before."""
    offload: list[Page] = field(default_factory=list)
    batch: list[Page] = field(default_factory=list)
    """Re-bound and copied pages in eviction order: how they enter the host order."""
    starts: list[Start] = field(default_factory=list)
    recall: list[Page] = field(default_factory=list)
    pin: list[Page] = field(default_factory=list)
    coming: list[Page] = field(default_factory=list)
    """Pages of the demand that fly to the gpu and are pinned when they land."""
    new: int = 0

    def release(self, tier: int, pages: list[Page], *, is_eviction: bool) -> None:
        """Add replicas to release."""
        if pages:
            self.releases.append(Release(tier, pages, is_eviction))

    def clear(self, tier: int, room: Room) -> None:
        """Add what a tier gives up."""
        self.release(tier, room.reclaim, is_eviction=False)
        self.release(tier, room.sink, is_eviction=True)
        self.drop = [*room.drop, *self.drop]


@dataclass(slots=True)
class Plan:
    """One plan, over all groups."""

    groups: list[GroupPlan]

    @property
    def recalled(self) -> int:
        """Count the pages recalled."""
        return sum(len(group.recall) for group in self.groups)

    @property
    def evicted(self) -> int:
        """Count the pages that leave the gpu for a colder tier."""
        sunk = (one for group in self.groups for one in group.releases if one.tier == GPU)
        copied = sum(len(group.offload) for group in self.groups)
        return copied + sum(len(one.pages) for one in sunk)


@dataclass(frozen=True, slots=True)
class Short:
    """A demand that no plan meets now: the tier and group that lack slots.

    `later` is how many will be available once all has ended that runs, and all has been written
    down that can be.
    """

    tier: int
    group: int
    asked: int
    available: int
    later: int


def plan(view: View, demand: Sequence[GroupDemand]) -> Plan | Short:
    """Plan a demand, all or nothing over the groups; moves no counter."""
    groups = []
    for group, wanted in enumerate(demand):
        found = _plan_group(view, group, wanted, {*wanted.pages, *wanted.spares})
        if isinstance(found, Short) and wanted.spares:
            found = _plan_group(view, group, wanted, set(wanted.pages))
        if isinstance(found, Short):
            return found
        groups.append(found)
    return Plan(groups)


def _plan_group(
    view: View, group: int, wanted: GroupDemand, own: Collection[Page]
) -> GroupPlan | Short:
    found = sources(wanted)
    asked = len(found.recall) + wanted.new + sum(len(start.pages) for start in found.starts)
    short = asked - view.pools[GPU][group].free
    if short <= 0:
        return found
    candidates = may_go(view, group, own, spare(view, HOST, group, own))
    victims = view.policies[GPU].victims(candidates, short)
    if len(victims) < short:
        most = _most_later(view, group, own)
        return Short(GPU, group, asked, asked - short + len(victims), most)
    send_down(view, group, victims, own, found)
    return found


def sources(wanted: GroupDemand) -> GroupPlan:
    """Sort the pages of a demand by where they come from."""
    found = GroupPlan(new=wanted.new)
    cold: dict[int, list[Page]] = {}
    flying = []
    for page in dict.fromkeys(wanted.pages):
        if page.slots[GPU] is not None:
            continue
        if page.slots[HOST] is not None:
            found.recall.append(page)
        elif page.flies_to(GPU):
            flying.append(page)
        else:
            cold.setdefault(page.primary, []).append(page)
    found.starts = [Start(tier, GPU, pages) for tier, pages in cold.items()]
    coming = {*flying, *(page for pages in cold.values() for page in pages)}
    found.pin = [page for page in wanted.pages if page not in coming] if coming else wanted.pages
    found.coming = [page for page in wanted.pages if page in coming] if coming else []
    return found


def may_go(view: View, group: int, own: Collection[Page], budget: int) -> Iterator[Page]:
    """Walk the pages that may leave the gpu, coldest first; of held ones as many as the budget.

    The budget is not for those that need no slot of it: a flight keeps their shadow in its place,
    or they have a replica behind the host.
    """
    needs = needs_slot if len(view.pools) > HOST + 1 else _is_held
    for page in view.evictable[GPU][group]:
        if page in own:
            continue
        if needs(page):
            if not budget:
                continue
            budget -= 1
        yield page


def _is_held(page: Page) -> int:
    return page.holds


def needs_slot(page: Page) -> bool:
    """Say whether a page takes up a slot that the host must give, to leave the gpu."""
    return bool(page.holds) and not page.flies_from(HOST) and not page.is_valid_below(HOST)


def _most_later(view: View, group: int, own: Collection[Page]) -> int:
    """Count the gpu slots that will be available once everything has ended that can end."""
    pool = view.pools[GPU][group]
    found = pool.free + quarantined(view, GPU, group)
    held = deep = 0
    for page in _leaving(view, group, own):
        found += not page.holds
        held += bool(page.holds)
        deep += bool(page.holds) and (page.is_valid_below(HOST) or _sinks(page))
    if len(view.pools) == HOST + 1:  # nothing but a quarantine ever ends
        room = spare(view, HOST, group, own) + quarantined(view, HOST, group)
        return found + min(held, room)
    total, at_once = later(view, group, own)
    return found + max(0, min(held, total, at_once + deep))


def _sinks(page: Page) -> bool:
    """Say whether a flight brings a replica behind the host."""
    return page.flight is not None and page.flight.target > HOST


def _leaving(view: View, group: int, own: Collection[Page]) -> Iterator[Page]:
    """Walk the pages that are, or will be, unpinned on the gpu."""
    yield from (page for page in view.evictable[GPU][group] if page not in own)
    for flight in view.flights.values():
        if flight.group == group and flight.target == GPU:
            yield from (page for page in flight.pages if not page.awaited and page not in own)


def send_down(
    view: View, group: int, victims: list[Page], own: Collection[Page], found: GroupPlan
) -> None:
    """Decide who of the victims is re-bound, copied, sunk or dropped, and what the host gives."""
    sunk = [page for page in victims if page.flies_to(HOST)]
    stay = [page for page in victims if page not in sunk] if sunk else victims
    clean = {page for page in stay if page.slots[HOST] is not None}
    if view.policies[GPU].writes_through:
        found.drop = [page for page in stay if page not in clean and _may_drop(page)]
        stay = [page for page in stay if page in clean or not _may_drop(page)]
    needed = len(stay) - len(clean)
    room = make_room(view, HOST, group, needed, keeping=clean.__contains__, staying=own)
    missing = needed - view.pools[HOST][group].free - room.slots
    if missing > 0:
        gone = _coldest(stay, missing)
        found.drop += [page for page in gone if _may_drop(page)]
        sunk += [page for page in gone if not _may_drop(page)]
        without = set(gone)
        stay = [page for page in stay if page not in without]
    found.clear(HOST, room)
    found.unclean = room.drop if len(view.pools) > HOST + 1 else []
    found.release(GPU, sunk, is_eviction=True)
    found.release(HOST, [p for p in sunk if p.slots[HOST] is not None], is_eviction=True)
    found.batch = stay
    rebind = [page for page in stay if page in clean] if clean else []
    found.release(GPU, rebind, is_eviction=True)
    found.offload = [page for page in stay if page not in clean] if clean else stay


def _may_drop(page: Page) -> bool:
    return not page.holds and page.flight is None


def _coldest(victims: list[Page], count: int) -> list[Page]:
    """Choose victims that go without a host slot: the coldest that can."""
    able = [page for page in victims if _may_drop(page) or _may_sink(page)][:count]
    assert len(able) == count, "the budget of held victims was wrong"
    return able


def _may_sink(page: Page) -> bool:
    return page.is_valid_below(HOST) and not page.flies_from(HOST)


def available(view: View, tier: int, group: int) -> int:
    """Say how many slots of a tier the planner would grant now (I7); O(evictable pages).

    Shadows never make it smaller: they count as free behind the gpu, and below a held page of the
    gpu they are the slot that it needs.
    """
    room = spare(view, max(tier, HOST), group)
    if tier != GPU:
        return room
    return view.pools[GPU][group].free + sum(1 for _ in may_go(view, group, (), room))
