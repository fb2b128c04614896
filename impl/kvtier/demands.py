"""What needs slots: demands and prefetches, from the question to the answer.

A demand is met by one plan, or answered `Busy` or `OutOfSlots`. Where pages come from a fallible
tier it takes two steps: the sequence takes all its slots at once and waits in `resuming`; asked
again when they have landed, it is active. A step that names such a sequence starts it and meets
nothing else before: no half of a step is ever done.

`Busy` may have begun copies down, for room; nothing of the demand itself was done, and planning
again is the only way on. With `demote="on_demand"` pages that a plan would drop from the host are
written down first; those that have landed are kept until a plan has run.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from kvtier import cleaning, lifting, planner
from kvtier.config import Config
from kvtier.errors import BadRequest, PageLost, WrongState
from kvtier.outcomes import Busy, Granted, Outcome, OutOfSlots
from kvtier.pages import GPU, HOST, Page
from kvtier.planner import GroupDemand, GroupPlan, Plan, Short
from kvtier.sequence import Sequence
from kvtier.store import Done, Store
from kvtier.users import Users
from kvtier_spec import Phase, SequenceState

Wish = tuple[Sequence, int]
"""A sequence and how many new pages it asks for."""


@dataclass(slots=True)
class Demands:
    """The demands of one cache."""

    config: Config
    store: Store
    users: Users
    kept: set[Page] = field(default_factory=set)
    """Pages written down for a plan that has not run yet."""

    def check(self, wish: Wish) -> None:
        """Raise if a sequence cannot be asked for; tell, once, that it has lost pages."""
        sequence, new = wish
        if sequence.state is SequenceState.CLOSED:
            raise WrongState(f"{sequence} cannot take pages; make a new one with Cache.sequence()")
        if sequence.state is SequenceState.RESUMING and new != sequence.wish:
            raise BadRequest(
                f"{sequence} is resuming with {sequence.wish} new pages: ask again with as many, "
                "or suspend() it first"
            )
        self.tell_losses(sequence)

    def tell_losses(self, sequence: Sequence) -> None:
        """Raise, once, if a sequence has lost pages."""
        if sequence.has_lost:
            sequence.has_lost = False
            raise PageLost(sequence, sequence.committed)

    def meet(self, wishes: list[Wish], stream: Hashable | None, lane: int) -> Outcome:
        """Meet wishes that were checked, all or nothing."""
        if tickets := self._waits(wishes):
            return Busy(tickets)
        cold = [wish for wish in wishes if _is_cold(wish[0])]
        if cold:
            return self._begin(cold, _to_plan(wishes))
        asked = _to_plan(wishes)
        answer = self._run(asked, lane)
        if not isinstance(answer, _Ran):
            return answer
        for sequence, new in wishes:
            self.users.activate(sequence, new, answer.done.opened, stream)
        return Granted(answer.plan.recalled, answer.plan.evicted)

    def _waits(self, wishes: Iterable[Wish]) -> tuple[int, ...]:
        """List the flights that must end before these sequences can be planned for at all."""
        return _tickets(
            page
            for sequence, _ in wishes
            for page in (
                sequence.coming if sequence.state is SequenceState.RESUMING else _blocked(sequence)
            )
        )

    def _begin(self, cold: list[Wish], every: list[Wish]) -> Outcome:
        """Let sequences with pages on fallible tiers take all their slots, and wait.

        Not if the whole of what is asked for has no room: then nothing is begun.
        """
        if len(cold) < len(every):
            demand = self._demand_of(every)
            whole = planner.plan(self.store.ledger, demand)
            if isinstance(whole, Short):
                return self.refuse(whole, _own(demand[whole.group]))
        answer = self._run(cold, None)
        if not isinstance(answer, _Ran):
            return answer
        for sequence, new in cold:
            self.users.wait_for(sequence, new, answer.done.opened)
        return Busy(_tickets(page for sequence, _ in cold for page in sequence.coming))

    def _run(self, wishes: Iterable[Wish], lane: int | None) -> _Ran | Busy | OutOfSlots:
        demand = self._demand_of(wishes)
        plan = planner.plan(self.store.ledger, demand)
        if isinstance(plan, Short):
            return self.refuse(plan, _own(demand[plan.group]))
        if tickets := self.write_before(plan.groups, [_own(part) for part in demand]):
            return Busy(tickets)
        self.kept.clear()
        return _Ran(plan, self.store.run(plan, lane))

    def _demand_of(self, wishes: Iterable[Wish]) -> list[GroupDemand]:
        demand = [GroupDemand() for _ in self.config.groups]
        for sequence, new in wishes:
            for track, part in zip(sequence.tracks, demand, strict=True):
                if sequence.state is SequenceState.SUSPENDED:
                    part.pages += track.pages
                    part.spares += track.spare.values()
                part.new += new
        return demand

    def write_before(
        self, stages: Seq[GroupPlan], staying: Seq[Collection[Page]]
    ) -> tuple[int, ...]:
        """Write pages down that a plan would drop, if that is the mode; give the tickets."""
        tickets: list[int] = []
        is_time = self.config.demote == "on_demand"
        for group, stage in enumerate(stages):
            if stage.unclean and is_time:
                sink = (one for one in stage.releases if one.tier == HOST and one.is_eviction)
                keeping = self.kept.union(stage.unclean, *(release.pages for release in sink))
                todo = cleaning.before(
                    self.store.ledger,
                    HOST,
                    group,
                    stage.unclean,
                    keeping=keeping,
                    staying=staying[group],
                    takes=self.store.flights.takes,
                )
                self.kept.update(page for start in todo.starts for page in start.pages)
                tickets += self.run_in(group, todo) if todo.starts else []
        return tuple(tickets)

    def run_in(self, group: int, stage: GroupPlan) -> list[int]:
        """Run what concerns one group alone; give the tickets of its flights."""
        groups = range(len(self.config.groups))
        return self.store.run(
            Plan([stage if other == group else GroupPlan() for other in groups]), None
        ).tickets

    def refuse(self, short: Short, staying: Collection[Page]) -> Busy | OutOfSlots:
        """Say why a demand is not met; begin what would help, if anything would."""
        if short.later >= short.asked:
            missing = short.asked - short.available
            takes = self.store.flights.takes
            for stage in cleaning.unblock(self.store.ledger, short.group, missing, staying, takes):
                self.run_in(short.group, stage)
            if tickets := self._running(short.group):
                return Busy(tickets)
        return self.out_of_slots(short)

    def _running(self, group: int) -> tuple[int, ...]:
        """List the tickets of all that is under way in a group.

        What was given up, and may never end, is among it only if there is nothing else.
        """
        flights = self.store.ledger.flights.values()
        tickets = [flight.ticket for flight in flights if flight.group == group]
        aside = self.store.copies.quarantined
        tickets += [part.ticket for part in aside if part.group == group]
        hung = self.store.flights.given_up.values()
        return tuple(sorted(tickets or [flight.ticket for flight in hung if flight.group == group]))

    def out_of_slots(self, short: Short) -> OutOfSlots:
        """Say who has the slots."""
        holders = (sequence.holder(short.group) for sequence in self.users.sequences.values())
        return OutOfSlots(
            self.config.chain.tiers[short.tier].name,
            self.config.groups[short.group].name,
            short.asked,
            short.available,
            tuple(holder for holder in holders if holder.pinned or holder.held),
        )

    def prefetch(self, sequence: Sequence, tier: int, moving: int) -> tuple[int, ...]:
        """Bring a suspended sequence's pages up to a tier as far as there is room."""
        pages: list[Page] = []
        for group, track in enumerate(sequence.tracks):
            wanted = GroupDemand(track.pages, spares=list(track.spare.values()))
            stage = lifting.lift(self.store.ledger, group, wanted, tier, moving)
            self.run_in(group, stage)
            pages += track.pages
        return _tickets(page for page in pages if page.flight and page.flight.target <= tier)


@dataclass(frozen=True, slots=True)
class _Ran:
    """A plan and what came of it."""

    plan: Plan
    done: Done


def _to_plan(wishes: Iterable[Wish]) -> list[Wish]:
    """Leave out those that have their slots already."""
    return [wish for wish in wishes if wish[0].state is not SequenceState.RESUMING]


def _own(part: GroupDemand) -> set[Page]:
    return {*part.pages, *part.spares}


def _is_cold(sequence: Sequence) -> bool:
    """Say whether pages of a suspended sequence must come from a fallible tier."""
    return sequence.state is SequenceState.SUSPENDED and any(
        page.slots[GPU] is None and page.slots[HOST] is None
        for track in sequence.tracks
        for page in track.pages
    )


def _blocked(sequence: Sequence) -> Iterable[Page]:
    """Find pages of a suspended sequence that a flight to elsewhere keeps from coming up.

    A page behind the host can take one flight at a time; an open page moves, so it must arrive.
    """
    return (
        page
        for track in sequence.tracks
        for page in track.pages
        if sequence.state is SequenceState.SUSPENDED
        and page.flight is not None
        and page.slots[GPU] is None
        and not page.flies_to(GPU)
        and (page.slots[HOST] is None or page.phase is Phase.OPEN)
    )


def _tickets(pages: Iterable[Page]) -> tuple[int, ...]:
    return tuple(sorted({page.flight.ticket for page in pages if page.flight is not None}))
