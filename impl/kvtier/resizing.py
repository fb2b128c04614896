"""Fewer slots, or more: a transaction over all groups, on the books and in memory.

To shrink, whatever stands in the slots that go leaves them by an ordinary plan: down, or released,
or dropped. Pinned pages there refuse it; flights and quarantined slots there, and held pages that
can be written down first, make it wait. Only when all groups have a plan does anything change. Then
the host waits for the device, the slots retire, and the memory is returned: a slot is never taken
from under a copy.

There are no moves within a tier, so which pages stand in the way is a matter of which slots they
got. Shrinking a full tier is cheap; shrinking one that is pinned at its end waits for its users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvtier.cleaning import write
from kvtier.demands import Demands
from kvtier.errors import BadRequest, ConfigError
from kvtier.outcomes import Busy, Granted, Outcome
from kvtier.pages import GPU, HOST, Page
from kvtier.planner import GroupPlan, Plan, Short, needs_slot, send_down
from kvtier.queues import EVICTABLE, PARKED, RECLAIMABLE
from kvtier.room import later, spare
from kvtier.store import Store
from kvtier.tiers import Memory
from kvtier_spec import Record


@dataclass(slots=True)
class Resizing:
    """One change of a tier's slots; `counts` by group."""

    demands: Demands
    tier: int
    counts: Sequence[int]
    plans: list[GroupPlan] = field(default_factory=list)

    @property
    def _store(self) -> Store:
        return self.demands.store

    def check(self) -> None:
        """Refuse memory that cannot be resized."""
        for group, memory in enumerate(self._memories()):
            if self.counts[group] != self._now(group) and not memory.is_resizable:
                raise BadRequest(
                    f"the memory of {self._name()} cannot be resized: it is adopted, or its class "
                    "has no resize()"
                )

    def prepare(self) -> Outcome | None:
        """Plan to clear the slots that go, in every group; or say what is in the way."""
        for group in range(len(self.counts)):
            plan = self._plan(group)
            if isinstance(plan, Busy):
                return plan
            if isinstance(plan, Short):
                return self.demands.refuse(plan, ())
            self.plans.append(plan)
        if tickets := self.demands.write_before(self.plans, [()] * len(self.plans)):
            return Busy(tickets)
        return None

    def grow(self) -> None:
        """Grow memories; only this can fail, and what has grown is shrunk again then."""
        self._store.engine.synchronize(with_jobs=False)
        try:
            for group, memory in enumerate(self._memories()):
                if self.counts[group] > memory.shape[0]:
                    memory.resize(self.counts[group])
        except BaseException as error:
            self._fit_memories()
            if isinstance(error, MemoryError | OSError):
                raise ConfigError(f"no room for more slots of {self._name()}: {error}") from error
            raise

    def apply(self) -> Outcome:
        """Clear the slots that go, wait for the device, change the books, return the memory."""
        try:
            self._store.run(Plan(self.plans), None)
            self.demands.kept.clear()
            self._store.engine.synchronize(with_jobs=False)
            self._change_books()
        finally:
            self._fit_memories()
        return Granted(evicted=Plan(self.plans).evicted)

    def _plan(self, group: int) -> GroupPlan | Short | Busy:
        """Plan to clear the slots that go."""
        limit = self.counts[group]
        if limit == self._now(group):
            return GroupPlan()
        if tickets := self._under_way(group, limit):
            return Busy(tickets)
        if limit > self._now(group):
            return GroupPlan()
        in_way = [
            page
            for page in self._store.ledger.pages[group].values()
            if (slot := page.slots[self.tier]) is not None and slot >= limit
        ]
        return self._off_gpu(group, in_way) if self.tier == GPU else self._off(group, in_way)

    def _under_way(self, group: int, limit: int) -> tuple[int, ...]:
        """List what is going on in the slots that go, and whatever flies from or to this tier.

        For its memory moves, and a thread would go on with the old one, also for what was given up.
        """
        store = self._store
        flights = [*store.ledger.flights.values(), *store.flights.given_up.values()]
        tickets = [
            aside.ticket
            for aside in store.copies.quarantined
            if (aside.tier, aside.group) == (self.tier, group) and max(aside.slots) >= limit
        ]
        tickets += [
            flight.ticket
            for flight in flights
            if flight.group == group and self.tier in (flight.source, flight.target)
        ]
        return tuple(tickets)

    def _off_gpu(self, group: int, in_way: list[Page]) -> GroupPlan | Short:
        ledger, asked = self._store.ledger, set(in_way)
        victims = [page for page in ledger.evictable[GPU][group] if page in asked]
        needy = sum(1 for page in victims if needs_slot(page))
        room = spare(ledger, HOST, group)
        if len(victims) < len(in_way) or needy > room:
            able = len(victims) - max(0, needy - room)
            total, at_once = later(ledger, group, ())
            is_later = len(victims) == len(in_way) and needy <= min(total, at_once)
            return Short(GPU, group, len(in_way), able, len(in_way) if is_later else 0)
        found = GroupPlan()
        send_down(ledger, group, victims, (), found)
        return found

    def _off(self, group: int, in_way: list[Page]) -> GroupPlan | Short | Busy:
        places = {page: page.places[self.tier] for page in in_way}
        leave = [page for page in in_way if places[page] == EVICTABLE]
        shadows = [page for page in in_way if places[page] == RECLAIMABLE]
        stuck = [page for page in in_way if places[page] == PARKED]
        if stuck:
            if self._store.flights.takes(self.tier + 1):
                todo = write(self._store.ledger, self.tier, group, stuck)
                if todo.starts:
                    return Busy(tuple(self.demands.run_in(group, todo)))
            return Short(self.tier, group, len(in_way), len(in_way) - len(stuck), 0)
        found = GroupPlan()
        found.release(self.tier, shadows, is_eviction=False)
        sink = [page for page in leave if page.is_valid_below(self.tier)]
        found.release(self.tier, sink, is_eviction=True)
        found.drop = [page for page in leave if not page.is_valid_below(self.tier)]
        found.unclean = found.drop if self.tier == HOST < len(self._store.ledger.pools) - 1 else []
        return found

    # ------------------------------------------------------------------------ books and memory

    def _change_books(self) -> None:
        for group, count in enumerate(self.counts):
            pool = self._store.ledger.pools[self.tier][group]
            kind, slots = pool.resize(count)
            record = Record(kind, slots=slots, target=self.tier, group=group)
            self._store.ledger.journal.emit([record])

    def _fit_memories(self) -> None:
        """Shrink memories to what the books say."""
        for group, memory in enumerate(self._memories()):
            if memory.shape[0] > self._now(group):
                memory.resize(self._now(group))

    def _memories(self) -> Sequence[Memory]:
        memories = self._store.engine.memories
        return [] if memories is None else memories[self.tier]

    def _now(self, group: int) -> int:
        return self._store.ledger.pools[self.tier][group].count

    def _name(self) -> str:
        return self.demands.config.chain.tiers[self.tier].name
