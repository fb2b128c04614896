"""Flights: copies to and from fallible tiers, begun here and ended here, and nowhere else.

A flight is one job of the engine for some pages of a group. Between `start` and its end each page
keeps its source, and its target slot is being filled. `poll` is where flights end: landed, or
failed page by page. A page that failed to be written is as before. One that failed to be read, or
was read wrong, is lost there: a miss, never wrong bytes. What became of a page that nobody has any
more (doomed) is only that its slots come back.

A flight that does not end can be given up: its pages are as before, and its target slots stay in
quarantine until the job has ended after all.

A tier that fails is left alone for a while: after a flight down of which nothing landed, and while
a job that was given up still runs there, nothing is written to it (`takes`). Else a dead disk would
be asked again at every poll, and demands would wait for it instead of going on without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvtier.errors import CopyFailed
from kvtier.ledger import Ledger, ids
from kvtier.pages import GPU, Flight, Page
from kvtier.submissions import Submissions, slots_of
from kvtier.transfer import FLIGHT, Copies, CopyRefused, Ended, Engine
from kvtier_spec import Kind, Phase, Record

FLIGHT_PAGES = 64
"""Pages of one flight: few enough that a slow page holds up few others."""
MAX_REST_POLLS = 1024
"""Polls for which a tier that fails is left alone at most; the first time it is one."""


@dataclass(slots=True)
class News:
    """What a poll found: pages whose flight failed, and pages that are lost with all replicas."""

    failed: list[Page] = field(default_factory=list)
    lost: list[Page] = field(default_factory=list)
    ended: int = 0
    """How many jobs have ended."""


@dataclass(slots=True)
class Flights:
    """The flights of one store."""

    ledger: Ledger
    engine: Engine
    copies: Submissions
    given_up: dict[int, Flight] = field(default_factory=dict)
    """By job: flights that were given up and have not ended."""
    polls: int = 0
    most_rest: int = MAX_REST_POLLS
    _rests: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By tier: for how many polls it was left alone last, and until which."""

    def start(self, pages: Sequence[Page], source: int, target: int) -> list[int]:
        """Begin to copy pages of one group; give the tickets."""
        cut = range(0, len(pages), FLIGHT_PAGES)
        return [self._start(list(pages[at : at + FLIGHT_PAGES]), source, target) for at in cut]

    def _start(self, pages: list[Page], source: int, target: int) -> int:
        group, pool = pages[0].group, self.ledger.pools[target][pages[0].group]
        sources, targets = slots_of(pages, source), pool.take(len(pages))
        waits = self.copies.waits(source, target, group, sources, targets)
        try:
            job = self.engine.start(Copies(FLIGHT, group, source, target, sources, targets), waits)
        except CopyRefused as error:
            pool.give(targets)
            raise CopyFailed("fetch" if target < source else "demote", 0, str(error)) from error
        flight = Flight(self.copies.ticket(), job, group, source, target, pages, targets.tolist())
        self.ledger.flights[flight.ticket] = flight
        for page, slot in zip(pages, flight.slots, strict=True):
            page.flight, page.filling = flight, slot
        self.ledger.queues.reconcile(pages)
        record = Record(Kind.START, ids(pages), flight.slots, source=source, target=target)
        self.ledger.emit([record], pages)
        return flight.ticket

    def takes(self, tier: int) -> bool:
        """Say whether pages may be written to a tier now: it does not fail, and does not hang."""
        hangs = any(flight.target == tier for flight in self.given_up.values())
        return not hangs and self.polls >= self._rests.get(tier, (0, 0))[1]

    def leave_alone(self, tier: int) -> None:
        """Write nothing to a tier for some polls, twice as many as the last time."""
        polls = min(2 * self._rests.get(tier, (0, 0))[0] or 1, self.most_rest)
        self._rests[tier] = polls, self.polls + polls

    def poll(self) -> News:
        """End the flights whose jobs have ended, in the order in which they began."""
        self.polls += 1
        news = News()
        if not self.ledger.flights and not self.given_up:
            return news
        by_job = {flight.job: flight for flight in self.ledger.flights.values()}
        for ended in sorted(self.engine.ended()):
            news.ended += 1
            late = self.given_up.pop(ended.job, None)
            if late is not None:
                self.copies.readmit(late.target, late.group, np.array(late.slots, np.int64))
            else:
                self._end(by_job[ended.job], ended, news)
        return news

    def _end(self, flight: Flight, ended: Ended, news: News) -> None:
        del self.ledger.flights[flight.ticket]
        rows = range(len(flight.pages))
        landed = [flight.pages[row] for row in rows if row not in ended.failed]
        failed = [flight.pages[row] for row in sorted(ended.failed)]
        unread = {flight.pages[row] for row in ended.unread}
        records = [*self._land(flight, landed), *self._fail(flight, failed, unread, news)]
        self._give_doomed(flight)
        self.ledger.emit(records, flight.pages)
        if flight.target > flight.source and landed:
            self._rests.pop(flight.target, None)
        elif flight.target > flight.source and len(unread) < len(failed):
            self.leave_alone(flight.target)

    def _land(self, flight: Flight, pages: list[Page]) -> list[Record]:
        """Make targets valid; open pages move, others leave a shadow if the tier's policy does."""
        source, target = flight.source, flight.target
        alive = [page for page in pages if page not in flight.doomed]
        moved = [page for page in alive if page.phase is Phase.OPEN]
        for page in alive:
            page.slots[target] = page.filling
            page.flight = page.filling = None
        self.ledger.give(moved, source)
        records = [Record(Kind.LAND, ids(pages), source=source, target=target)]
        if target < source and not self.ledger.policies[source].keeps_shadow:
            left = [page for page in alive if page.phase is not Phase.OPEN]
            self.ledger.give(left, source)
            records.append(Record(Kind.RELEASE, ids(left), target=source))
        records += self._meet(alive) if target == GPU else []
        self.ledger.queues.reconcile(alive)
        return records

    def _meet(self, pages: list[Page]) -> list[Record]:
        """Pin pages that have come to the gpu for all that await them, in exchange for holds."""
        awaited = [page for page in pages for _ in range(page.awaited)]
        for page in pages:
            page.pins += page.awaited
            page.holds -= page.awaited
            page.awaited = 0
        return [Record(Kind.PIN, ids(awaited)), Record(Kind.UNHOLD, ids(awaited))]

    def _fail(
        self, flight: Flight, pages: list[Page], unread: Collection[Page], news: News
    ) -> list[Record]:
        """Give the targets back; what a fallible tier could not read is lost there."""
        alive = [page for page in pages if page not in flight.doomed]
        slots = [page.filling for page in alive if page.filling is not None]
        self.ledger.pools[flight.target][flight.group].give(slots)
        for page in alive:
            page.flight = page.filling = None
            page.awaited = 0
        news.failed += alive
        records = [Record(Kind.FAIL, ids(pages))]
        if self.ledger.chain.tiers[flight.source].fallible:
            lost = [page for page in alive if page in unread]
            records += self._lose(lost, flight.source, news)
        self.ledger.queues.reconcile(page for page in alive if not page.is_gone)
        return records

    def _lose(self, pages: list[Page], tier: int, news: News) -> list[Record]:
        """Take replicas away that turned out to be bad."""
        self.ledger.give(pages, tier)
        gone = [page for page in pages if page.is_gone]
        self.ledger.remove(gone)
        news.lost += gone
        return [Record(Kind.LOSE, ids(pages), target=tier)]

    def _give_doomed(self, flight: Flight, *, with_targets: bool = True) -> None:
        """Give the slots back that a flight owned for pages that nobody has any more."""
        if not flight.doomed:
            return
        pools, group = self.ledger.pools, flight.group
        pools[flight.source][group].give(list(flight.doomed.values()))
        if with_targets:
            targets = [page.filling for page in flight.doomed if page.filling is not None]
            pools[flight.target][group].give(targets)
        flight.doomed = {}

    def give_up(self, tickets: Iterable[int]) -> News:
        """Stop waiting for flights; their targets are quarantined until the jobs have ended."""
        news = News()
        for ticket in tickets:
            flight = self.ledger.flights.pop(ticket, None)
            if flight is not None:
                self._give_up(flight, news)
        return news

    def _give_up(self, flight: Flight, news: News) -> None:
        self.engine.abandon(flight.job)
        self.given_up[flight.job] = flight
        self.ledger.pools[flight.target][flight.group].quarantine(flight.slots)
        alive = [page for page in flight.pages if page not in flight.doomed]
        for page in alive:
            page.flight = page.filling = None
            page.awaited = 0
        news.failed += alive
        self._give_doomed(flight, with_targets=False)
        self.ledger.queues.reconcile(alive)
        self.ledger.emit([Record(Kind.FAIL, ids(flight.pages), is_touched=True)], flight.pages)

    def wait(self, tickets: Collection[int], timeout_s: float | None) -> bool:
        """Block until the jobs of these tickets have ended, or for so long; say if they have."""
        every = [*self.ledger.flights.values(), *self.given_up.values()]
        jobs = [flight.job for flight in every if flight.ticket in tickets]
        return self.engine.wait_for(jobs, timeout_s)
