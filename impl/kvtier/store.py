"""The store: pages and their replicas. It runs plans, and keeps who uses what.

Every change goes the same way, through the verbs of `ledger.py`: slots, page objects,
`Queues.reconcile` (which derives from a page's state the queues its replicas stand in), and one
batch to the journal.

Copies between infallible tiers are eager: the state changes at submission, the slots carry fences,
and whoever uses a slot next is ordered after them on the device. Each stage of a plan reserves its
slots, submits, and commits as a unit. A submission that fails leaves its sources as they were; its
targets go back if nothing was queued, and into quarantine until the lane has passed if something
was. There is one place for that: `submissions.py`. Copies to and from fallible tiers are flights:
`flights.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvtier.errors import CopyFailed
from kvtier.flights import Flights
from kvtier.ledger import Ledger, ids
from kvtier.pages import GPU, HOST, Page
from kvtier.planner import GroupPlan, Plan
from kvtier.policy import Policy
from kvtier.queues import EVICTABLE
from kvtier.room import make_room
from kvtier.slots import Fence, Slots
from kvtier.submissions import Submissions
from kvtier.transfer import OFFLOAD, RECALL, Engine
from kvtier_spec import Kind, Phase, Record


@dataclass(slots=True)
class Done:
    """What a plan has done: the pages opened, by group, and the tickets of its flights."""

    opened: list[list[Page]]
    tickets: list[int]


@dataclass(slots=True)
class Store:
    """Users and plans over one ledger."""

    ledger: Ledger
    engine: Engine
    copies: Submissions = field(init=False)
    flights: Flights = field(init=False)
    _next_id: int = 0

    def __post_init__(self) -> None:
        self.copies = Submissions(self.ledger.pools, self.engine, self.ledger.journal)
        self.flights = Flights(self.ledger, self.engine, self.copies)

    @property
    def policy(self) -> Policy:
        """The policy of gpu and host."""
        return self.ledger.policies[GPU]

    # ---------------------------------------------------------------------------------- users

    def hold(self, pages: Sequence[Page]) -> None:
        """Hold pages: they may move down but are never dropped. Reorders nothing."""
        for page in pages:
            page.holds += 1
        self.ledger.queues.reconcile(pages)
        self.ledger.emit([Record(Kind.HOLD, ids(pages))], pages)

    def unhold(self, pages: Sequence[Page]) -> None:
        """Give up holds. Reorders nothing."""
        self.rest((), hold=False, freed=pages)

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

        `gone` are private pages that leave with their user, `freed` pages whose hold is given up;
        pages that a reset has forgotten leave with their last user. `used` is given where twins
        stood among them: all positions, each twin's by its mate, whose content was used all the
        same, so that the order is that of the prompt.
        """
        ledger = self.ledger
        records = [Record(Kind.HOLD, ids(pages))] if hold else []
        for page in pages:
            page.pins -= 1
            page.holds += hold
        for page in freed:
            page.holds -= 1
        records += [Record(Kind.UNPIN, ids(pages)), Record(Kind.UNHOLD, ids(freed))]
        left = {page: None for page in (*pages, *freed) if _outlives_its_users(page)}
        records += [*ledger.vanish(gone), *ledger.vanish(list(left))]
        stay = [page for page in pages if page not in left] if left else pages
        ledger.queues.reconcile([*stay, *(page for page in freed if page not in left)])
        ledger.queues.renew(used, GPU)
        if self.policy.touches_shadows:
            ledger.queues.touch_shadows(stay, HOST)
        ledger.emit(records, [*pages, *gone, *freed])

    def drop(self, pages: Sequence[Page]) -> None:
        """Drop private pages with their one user; those in flight are doomed."""
        self.ledger.emit(self.ledger.vanish(pages), pages)

    def commit(self, pages: Sequence[Page], keys: Sequence[Hashable], fence: Fence) -> list[Page]:
        """Commit open pages under keys; give the pages that their user has pinned afterwards.

        Where another page is found under a key: if that one has no gpu replica it takes the slot
        (join), else the new page becomes its twin. Holds are the caller's business.
        """
        index = self.ledger.found[pages[0].group] if pages else {}
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
            Record(Kind.COMMIT, ids(fresh), keys=[page.key for page in fresh], fence=fence),
            Record(
                Kind.COMMIT,
                ids(twins),
                keys=[page.key for page in twins],
                fence=fence,
                is_private=True,
            ),
        ]
        joined = self._join(twins, records)
        self.ledger.emit(records, pages)
        return [joined.get(page, page) for page in pages]

    def commit_late(self, pages: Sequence[Page], keys: Sequence[Hashable], fence: Fence) -> None:
        """Commit open pages of a sequence that a reset has overtaken: nobody may find them."""
        for page, key in zip(pages, keys, strict=True):
            page.key, page.phase = key, Phase.FORGOTTEN
        self.copies.note_writes(pages, fence)
        record = Record(Kind.COMMIT, ids(pages), keys=list(keys), fence=fence, is_late=True)
        self.ledger.emit([record], pages)

    def _join(self, twins: list[Page], records: list[Record]) -> dict[Page, Page]:
        """Let pages without a gpu replica take their twins' slots."""
        joined: dict[Page, Page] = {}
        for twin in twins:
            mate = twin.mate
            if mate is not None and mate.slots[GPU] is None and not mate.flies_to(GPU):
                mate.slots[GPU], twin.slots[GPU] = twin.slots[GPU], None
                mate.pins += 1
                self.ledger.pages[twin.group].pop(twin.id)
                joined[twin] = mate
        mates = list(joined.values())
        records.append(Record(Kind.JOIN, ids(mates), twins=ids(joined)))
        for tier in range(HOST, len(self.ledger.pools)):
            if not self.ledger.policies[tier].keeps_shadow:
                left = [p for p in mates if p.slots[tier] is not None and not p.flies_from(tier)]
                records.append(Record(Kind.RELEASE, ids(left), target=tier))
                self.ledger.give(left, tier)
        on_host = [mate for mate in mates if mate.slots[HOST] is not None]
        self.ledger.queues.reconcile(self.policy.shadow_order(on_host))
        self.ledger.queues.reconcile(mates)
        return joined

    def forget_keys(self) -> None:
        """Make every key unfindable (a reset); pages in use live on, all others go."""
        for group, index in enumerate(self.ledger.found):
            pages = list(index.values())
            index.clear()
            for page in pages:
                page.phase = Phase.FORGOTTEN
            unused = [page for page in pages if page.is_unused]
            records = [Record(Kind.FORGET, ids(pages)), *self.ledger.vanish(unused)]
            for record in records:
                record.group = group
            self.ledger.journal.emit(records)
        for policy in self.ledger.policies:
            policy.forget()

    # ---------------------------------------------------------------------------------- plans

    def run(self, plan: Plan, lane: int | None) -> Done:
        """Run a plan for a user on a lane (None: for nobody yet).

        Raises CopyFailed after a failed submission: earlier stages stand, later ones did not begin.
        """
        for group, stage in enumerate(plan.groups):
            self._clear(group, stage)
        for group, stage in enumerate(plan.groups):
            self._offload(group, stage)
        tickets = [ticket for stage in plan.groups for ticket in self._start(stage)]
        moved = self._recall(plan.groups)
        opened = [
            self._grant(group, stage, moved[group], lane) for group, stage in enumerate(plan.groups)
        ]
        return Done(opened, tickets)

    def _start(self, stage: GroupPlan) -> list[int]:
        """Send pages on their flights."""
        return [
            ticket
            for start in stage.starts
            for ticket in self.flights.start(start.pages, start.source, start.target)
        ]

    def _clear(self, group: int, plan: GroupPlan) -> None:
        """Release and drop: book-keeping only, nothing here can fail."""
        records = []
        for release in plan.releases:
            self.ledger.give(release.pages, release.tier)
            records.append(
                Record(
                    Kind.RELEASE,
                    ids(release.pages),
                    target=release.tier,
                    group=group,
                    is_eviction=release.is_eviction,
                )
            )
        self.ledger.remove(plan.drop)
        self.ledger.queues.reconcile(page for release in plan.releases for page in release.pages)
        self.ledger.journal.emit([*records, Record(Kind.DROP, ids(plan.drop), group=group)])

    def _offload(self, group: int, plan: GroupPlan) -> None:
        """Copy victims to the host; all of the batch enters the host order in eviction order."""
        pages = plan.offload
        if not pages:
            return
        moved = self.copies.submit("offload", OFFLOAD, GPU, HOST, pages)
        committed = [page for page in pages if page.phase is not Phase.OPEN]
        self.ledger.give(pages, GPU)
        self.ledger.set(pages, HOST, moved)
        self.ledger.queues.reconcile(pages)
        if len(pages) < len(plan.batch):
            self.ledger.queues.enter_in_order(plan.batch, HOST)
        self.ledger.journal.emit(
            [
                Record(Kind.COPY, ids(pages), moved.tolist(), source=GPU, target=HOST, group=group),
                Record(Kind.RELEASE, ids(committed), target=GPU, group=group),
            ]
        )

    def _recall(self, plans: Sequence[GroupPlan]) -> list[Slots]:
        """Submit the recalls of all groups, to be committed with the pins.

        Where one fails, those before it stand: their pages are on the gpu, and held as before.
        """
        moved: list[Slots] = []
        try:
            for plan in plans:
                pages = plan.recall
                none = np.empty(0, np.int64)
                moved.append(
                    self.copies.submit("recall", RECALL, HOST, GPU, pages) if pages else none
                )
        except CopyFailed:
            for plan, slots in zip(plans, moved, strict=False):
                self.ledger.emit(self._recalled(plan.recall, slots), plan.recall)
            raise
        return moved

    def _recalled(self, pages: list[Page], moved: Slots) -> list[Record]:
        """Commit one recall: the host replica stays where the policy keeps shadows."""
        if not pages:
            return []
        keeps = self.policy.keeps_shadow
        self.ledger.set(pages, GPU, moved)
        left = [
            page
            for page in pages
            if page.phase is Phase.OPEN or not (keeps or page.flies_from(HOST))
        ]
        self.ledger.give(left, HOST)
        self.ledger.queues.reconcile(self.policy.shadow_order(pages))
        released = [page for page in left if page.phase is not Phase.OPEN]
        return [
            Record(Kind.COPY, ids(pages), moved.tolist(), source=HOST, target=GPU),
            Record(Kind.RELEASE, ids(released), target=HOST),
        ]

    def _grant(self, group: int, plan: GroupPlan, moved: Slots, lane: int | None) -> list[Page]:
        """Commit the recalls, open the new pages, and pin all that was asked for."""
        for page in plan.pin:
            page.pins += 1
            page.holds -= 1
        for page in plan.coming:
            page.awaited += 1
        records = self._recalled(plan.recall, moved)
        opened = self._open(group, plan.new)
        pinned = ids(plan.pin)
        records += [
            Record(Kind.PIN, pinned),
            Record(Kind.UNHOLD, pinned),
            Record(Kind.OPEN, ids(opened), [p.slots[GPU] for p in opened]),  # type: ignore[misc]
        ]
        self.ledger.queues.reconcile(
            page for page in plan.pin if page.places[GPU] == EVICTABLE or page.held_at is not None
        )
        if lane is not None:
            self.copies.order_user([*plan.pin, *opened], lane)
        self.ledger.emit(records, [*plan.pin, *opened, *plan.recall])
        return opened

    def _open(self, group: int, count: int) -> list[Page]:
        ledger = self.ledger
        slots = ledger.pools[GPU][group].take(count).tolist() if count else []
        tiers, first = len(ledger.pools), self._next_id
        self._next_id += count
        opened = []
        for number, slot in enumerate(slots, first):
            page = Page(number, group, [slot] + [None] * (tiers - 1))
            page.pins = 1
            opened.append(page)
        ledger.pages[group].update((page.id, page) for page in opened)
        return opened

    def write_through(self, pages: Iterable[Page]) -> None:
        """Copy pinned pages of one group to the host where they have no copy and it has room.

        Room is a free slot or a page that can be given up, never another's copy. A copy that fails
        is tried again at the next use.
        """
        ledger = self.ledger
        asked = [page for page in dict.fromkeys(pages) if _lacks_a_copy(page)]
        worth = [page for page in asked if self.policy.is_worth_a_copy(page.key)]
        if not worth:
            return
        group = worth[0].group
        room = make_room(ledger, HOST, group, len(worth), keeping=lambda _: True)
        chosen = worth[: ledger.pools[HOST][group].free + room.slots]
        if not chosen:
            return
        stage = GroupPlan()
        stage.clear(HOST, room)
        self._clear(group, stage)
        try:
            moved = self.copies.submit("write-through", OFFLOAD, GPU, HOST, chosen)
        except CopyFailed:
            return
        ledger.set(chosen, HOST, moved)
        ledger.queues.reconcile(chosen)
        record = Record(Kind.COPY, ids(chosen), moved.tolist(), source=GPU, target=HOST)
        ledger.emit([record], chosen)


def _outlives_its_users(page: Page) -> bool:
    return page.phase is Phase.FORGOTTEN and page.is_unused


def _lacks_a_copy(page: Page) -> bool:
    return (
        page.phase is Phase.COMMITTED
        and page.slots[GPU] is not None
        and page.slots[HOST] is None
        and not page.flies_to(HOST)
    )
