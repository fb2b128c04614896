"""The store: pages and their replicas. It runs plans, and it alone writes the state of a page.

Every change goes the same way: slots, page objects, `Queues.reconcile` (which derives from a
page's state the queues its replicas stand in), and one batch to the journal. Nothing else assigns a
slot, a count or a queue.

Copies between infallible tiers are eager: the state changes at submission, the slots carry fences,
and whoever uses a slot next is ordered after them on the device. Each stage of a plan reserves its
slots, submits, and commits as a unit. A submission that fails leaves its sources as they were; its
targets go back if nothing was queued, and into quarantine until the lane has passed if something
was. There is one place for that: `submissions.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvtier.errors import CopyFailed
from kvtier.journal import Journal
from kvtier.order import Order
from kvtier.pages import Page
from kvtier.planner import GPU, HOST, GroupPlan, Plan
from kvtier.policy import Policy
from kvtier.queues import EVICTABLE, Queues
from kvtier.slots import Fence, SlotPool, Slots
from kvtier.submissions import Submissions, slots_of
from kvtier.transfer import OFFLOAD, RECALL, Engine
from kvtier_spec import Kind, Phase, Record


@dataclass(slots=True)
class Store:
    """Pools, orders and the index of keys, by tier and group; `pages` holds all that live."""

    pools: list[list[SlotPool]]
    policy: Policy
    engine: Engine
    journal: Journal
    queues: Queues = field(init=False)
    found: list[dict[Hashable, Page]] = field(init=False)
    pages: list[dict[int, Page]] = field(init=False)
    copies: Submissions = field(init=False)
    _next_id: int = 0

    def __post_init__(self) -> None:
        groups = range(len(self.pools[GPU]))
        self.queues = Queues(len(self.pools), len(groups))
        self.copies = Submissions(self.pools, self.engine, self.journal)
        self.found = [{} for _ in groups]
        self.pages = [{} for _ in groups]

    @property
    def evictable(self) -> list[list[Order]]:
        """The eviction orders, by tier and group."""
        return self.queues.evictable

    @property
    def reclaimable(self) -> list[list[Order]]:
        """The reclaim orders, by tier and group."""
        return self.queues.reclaimable

    # ---------------------------------------------------------------------------------- users

    def hold(self, pages: Sequence[Page]) -> None:
        """Hold pages: they may move down but are never dropped. Reorders nothing."""
        for page in pages:
            page.holds += 1
        self.queues.reconcile(pages)
        self._emit([Record(Kind.HOLD, _ids(pages))], pages)

    def unhold(self, pages: Sequence[Page]) -> None:
        """Give up holds. Reorders nothing."""
        for page in pages:
            page.holds -= 1
        self.queues.reconcile(pages)
        self._emit([Record(Kind.UNHOLD, _ids(pages))], pages)

    def rest(
        self,
        pages: Sequence[Page],
        *,
        hold: bool,
        gone: Sequence[Page] = (),
        freed: Sequence[Page] = (),
        used: Sequence[Page] = (),
    ) -> None:
        """End an activity: unpin pages (hottest last), in exchange for holds or for nothing.

        `gone` are private pages that leave with their user, `freed` pages whose hold is given up.
        `used` is given where twins stood among them: all positions, each twin's by its mate, whose
        content was used all the same, so that the order is that of the prompt.
        """
        records = [Record(Kind.HOLD, _ids(pages))] if hold else []
        for page in pages:
            page.pins -= 1
            page.holds += hold
        for page in freed:
            page.holds -= 1
        records += [Record(Kind.UNPIN, _ids(pages)), Record(Kind.UNHOLD, _ids(freed))]
        records += [Record(Kind.DROP, _ids(gone))]
        self._forget(gone)
        self.queues.reconcile([*pages, *freed])
        self.queues.renew(used, GPU)
        if self.policy.touches_shadows:
            self.queues.touch_shadows(pages)
        self._emit(records, [*pages, *gone, *freed])

    def drop(self, pages: Sequence[Page]) -> None:
        """Drop pages with all their replicas."""
        self._forget(pages)
        self._emit([Record(Kind.DROP, _ids(pages))], pages)

    def commit(self, pages: Sequence[Page], keys: Sequence[Hashable], fence: Fence) -> list[Page]:
        """Commit open pages under keys; give the pages that their user has pinned afterwards.

        Where another page is found under a key: if that one has no gpu replica it takes the slot
        (join), else the new page becomes its twin. Holds are the caller's business.
        """
        index = self.found[pages[0].group] if pages else {}
        fresh: list[Page] = []
        twins: list[Page] = []
        for page, key in zip(pages, keys, strict=True):
            page.key = key
            page.mate = index.setdefault(key, page)
            page.phase = Phase.COMMITTED if page.mate is page else Phase.TWIN
            (fresh if page.mate is page else twins).append(page)
        for page in fresh:
            page.mate = None
        self.copies.note_writes(pages, fence)
        records = [
            Record(Kind.COMMIT, _ids(fresh), keys=[page.key for page in fresh], fence=fence),
            Record(
                Kind.COMMIT,
                _ids(twins),
                keys=[page.key for page in twins],
                fence=fence,
                is_private=True,
            ),
        ]
        joined = self._join(twins, records)
        self._emit(records, pages)
        return [joined.get(page, page) for page in pages]

    def _join(self, twins: list[Page], records: list[Record]) -> dict[Page, Page]:
        """Let pages without a gpu replica take their twins' slots."""
        joined: dict[Page, Page] = {}
        for twin in twins:
            mate = twin.mate
            if mate is not None and mate.slots[GPU] is None:
                mate.slots[GPU], twin.slots[GPU] = twin.slots[GPU], None
                mate.pins += 1
                self.pages[twin.group].pop(twin.id)
                joined[twin] = mate
        mates = list(joined.values())
        records.append(Record(Kind.JOIN, _ids(mates), twins=_ids(joined)))
        if mates and not self.policy.keeps_shadow:
            records.append(Record(Kind.RELEASE, _ids(mates), target=HOST))
            self._give(mates, HOST)
        self.queues.reconcile(self.policy.shadow_order(mates))
        return joined

    # ---------------------------------------------------------------------------------- plans

    def run(self, plan: Plan, lane: int) -> list[list[Page]]:
        """Run a plan for a user on a lane; give the opened pages of each group.

        Raises CopyFailed after a failed submission: earlier stages stand, later ones did not begin.
        """
        for group, stage in enumerate(plan.groups):
            self._clear(group, stage)
        for group, stage in enumerate(plan.groups):
            self._offload(group, stage)
        moved = self._recall(plan.groups)
        return [
            self._grant(group, stage, moved[group], lane) for group, stage in enumerate(plan.groups)
        ]

    def _clear(self, group: int, plan: GroupPlan) -> None:
        """Reclaim, drop and re-bind: book-keeping only, nothing here can fail."""
        self._give(plan.reclaim, HOST)
        self._forget(plan.drop)
        self._give(plan.rebind, GPU)
        self.queues.reconcile([*plan.reclaim, *plan.rebind])
        self.journal.emit(
            [
                Record(Kind.RELEASE, _ids(plan.reclaim), target=HOST, group=group),
                Record(Kind.DROP, _ids(plan.drop), group=group),
                Record(Kind.RELEASE, _ids(plan.rebind), target=GPU, group=group),
            ]
        )

    def _offload(self, group: int, plan: GroupPlan) -> None:
        """Copy victims to the host; all of the batch enters the host order in eviction order."""
        pages = plan.offload
        if not pages:
            return
        moved = self.copies.submit("offload", OFFLOAD, GPU, HOST, pages)
        committed = [page for page in pages if page.phase is not Phase.OPEN]
        self._give(pages, GPU)
        self._set(pages, HOST, moved)
        self.queues.reconcile(pages)
        if plan.rebind:
            self.queues.enter_in_order(plan.batch, HOST)
        self.journal.emit(
            [
                Record(
                    Kind.COPY, _ids(pages), moved.tolist(), source=GPU, target=HOST, group=group
                ),
                Record(Kind.RELEASE, _ids(committed), target=GPU, group=group),
            ]
        )

    def _recall(self, plans: Sequence[GroupPlan]) -> list[Slots]:
        """Submit the recalls of all groups; they are committed with the pins, all or none."""
        moved: list[Slots] = []
        try:
            for plan in plans:
                pages = plan.recall
                none = np.empty(0, np.int64)
                moved.append(
                    self.copies.submit("recall", RECALL, HOST, GPU, pages) if pages else none
                )
        except CopyFailed:
            for group, slots in enumerate(moved):
                self.copies.set_aside(GPU, group, slots, RECALL)
            raise
        return moved

    def _grant(self, group: int, plan: GroupPlan, moved: Slots, lane: int) -> list[Page]:
        """Commit the recalls, open the new pages, and pin all that was asked for."""
        recalled, records = plan.recall, []
        if recalled:
            self._set(recalled, GPU, moved)
            keeps = self.policy.keeps_shadow
            left = [page for page in recalled if page.phase is Phase.OPEN or not keeps]
            self._give(left, HOST)
            released = [page for page in left if page.phase is not Phase.OPEN]
            records = [
                Record(
                    Kind.COPY, _ids(recalled), moved.tolist(), source=HOST, target=GPU, group=group
                ),
                Record(Kind.RELEASE, _ids(released), target=HOST, group=group),
            ]
        for page in plan.pin:
            page.pins += 1
            page.holds -= 1
        opened = self._open(group, plan.new)
        pinned = _ids(plan.pin)
        records += [
            Record(Kind.PIN, pinned, group=group),
            Record(Kind.UNHOLD, pinned, group=group),
            Record(Kind.OPEN, _ids(opened), [p.slots[GPU] for p in opened], group=group),  # type: ignore[misc]
        ]
        self.queues.reconcile(self.policy.shadow_order(recalled))
        self.queues.reconcile(page for page in plan.pin if page.places[GPU] == EVICTABLE)
        self.copies.order_user([*plan.pin, *opened], lane)
        self.journal.emit(records)
        return opened

    def _open(self, group: int, count: int) -> list[Page]:
        slots = self.pools[GPU][group].take(count).tolist() if count else []
        tiers, first = len(self.pools), self._next_id
        self._next_id += count
        opened = []
        for number, slot in enumerate(slots, first):
            page = Page(number, group, [slot] + [None] * (tiers - 1))
            page.pins = 1
            opened.append(page)
        self.pages[group].update((page.id, page) for page in opened)
        return opened

    # ------------------------------------------------------------------------ slots and queues

    def _set(self, pages: Sequence[Page], tier: int, slots: Slots) -> None:
        for page, slot in zip(pages, slots.tolist(), strict=True):
            page.slots[tier] = slot

    def _give(self, pages: Sequence[Page], tier: int) -> None:
        """Give the slots of pages on one tier back."""
        if not pages:
            return
        self.pools[tier][pages[0].group].give(slots_of(pages, tier))
        for page in pages:
            page.slots[tier] = None

    def _forget(self, pages: Sequence[Page]) -> None:
        """Make pages absent: slots given back, out of every queue, not findable."""
        if not pages:
            return
        group = pages[0].group
        for tier in range(len(self.pools)):
            self._give([page for page in pages if page.slots[tier] is not None], tier)
        for page in pages:
            page.pins = page.holds = 0
            if page.phase is Phase.COMMITTED:
                del self.found[group][page.key]
            del self.pages[group][page.id]
        self.queues.reconcile(pages)

    def _emit(self, records: list[Record], pages: Sequence[Page]) -> None:
        if pages:
            for record in records:
                record.group = pages[0].group
            self.journal.emit(records)


def _ids(pages: Iterable[Page]) -> list[int]:
    return [page.id for page in pages]
