"""The cache: the public face of kvtier.

    >>> from kvtier import Cache, Config
    >>> cache = Cache(Config(slots={"gpu": 4, "host": 8}))
    >>> first = cache.sequence([b"a", b"b"])
    >>> first.matched, bool(first.resume(new=2))
    (0, True)
    >>> cache.memory("gpu").array[first.slots()] = 7
    >>> first.commit([b"a", b"b"])
    >>> first.close()
    >>> cache.sequence([b"a", b"b", b"c"]).hits
    {'gpu': 2, 'host': 0}

Every public operation begins with `poll`. What may fail is asked before anything changes; a failed
copy leaves a legal state (`CopyFailed`). An error inside a commit, Ctrl-C among them, stops the
cache: it says so from then on, with its last events, instead of going on from a broken state.

A cache is used by one thread. Streams order its users on the device; only waits of the
caller itself (`stream=None`, `wait`, `resize`, `close`) block.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Self

from kvtier import doors, planner, report
from kvtier.config import Config
from kvtier.demands import Demands
from kvtier.errors import BadRequest
from kvtier.failstop import FailStop
from kvtier.journal import Journal, Subscriber
from kvtier.ledger import Ledger
from kvtier.memories import Factory, check_memories, invalidate, make_memories
from kvtier.operations import Operations
from kvtier.outcomes import Outcome
from kvtier.pages import GPU, HOST
from kvtier.policy import COLD_POLICIES, POLICIES
from kvtier.resizing import Resizing
from kvtier.sequence import Sequence
from kvtier.slots import SlotPool
from kvtier.stats import Counters, Stats
from kvtier.store import Store
from kvtier.tiers import Memory
from kvtier.transfer import CALLER, CpuEngine, Engine
from kvtier.upkeep import Upkeep
from kvtier.users import Users
from kvtier_spec import Checker, Snapshot


@dataclass(frozen=True, slots=True)
class Demand:
    """What one sequence asks of a step: to be active, with `new` more open pages of each group."""

    sequence: Sequence
    new: int = 0


class Cache:
    """Pages on a chain of tiers, found by key, used through sequences.

    Memory: by default numpy arrays (one stands for the gpu) and, for a tier `disk`, a temporary
    file; `tiers` gives the class of a tier by name, called with (slots, page_bytes) for each group;
    `memories` gives all of them, by tier and group. The cpu engine copies between them. An `engine`
    of your own brings its memories along; a `NullEngine` has none.
    """

    def __init__(
        self,
        config: Config,
        *,
        engine: Engine | None = None,
        memories: Seq[Seq[Memory]] | None = None,
        tiers: Mapping[str, Factory] | None = None,
    ) -> None:
        self.config = config
        if tiers is not None and (engine is not None or memories is not None):
            raise BadRequest("give tiers, or memories, or an engine that has them")
        if engine is None:
            engine = CpuEngine(make_memories(config, tiers or {}) if memories is None else memories)
        check_memories(config, engine.memories, memories)
        self.engine = engine
        self._journal = Journal()
        self._counters = Counters(config.chain)
        self._journal.subscribe(self._counters)
        self._store = _store(config, engine, self._journal)
        demands = Demands(config, self._store, Users(config, self._store))
        upkeep, stop = Upkeep(demands), FailStop(self._journal)
        self._operations = Operations(engine, self._journal, demands, upkeep, stop)
        counts = [config.slots_of(tier.name) for tier in config.chain.tiers]
        self._checker = Checker(config.chain, list(zip(*counts, strict=True)))
        if config.audit:
            self._journal.auditor = self._checker.feed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------ sequences

    def sequence(self, keys: Seq[Hashable] = ()) -> Sequence:
        """Look up a prompt: hold every page of it that any tier has; nothing is reordered.

        `keys` name the full blocks of the prompt, in order. `hits` of the sequence counts, by tier,
        the longest prefix that every group can use; pages behind it are held too, until the
        sequence commits their keys or closes. O(keys).
        """
        self._operations.enter()
        return self._operations.look_up(doors.keys(keys))

    def step(self, demands: Iterable[Demand], *, stream: Hashable | None = None) -> Outcome:
        """Meet the demands of many sequences with one plan, all or nothing.

        Suspended sequences are resumed, active ones get their new pages appended. From here on all
        of them are used on `stream`; it is ordered after what an active one did on another. Those
        with pages on a fallible tier are begun first, and the step is `Busy` until they are there;
        if it is refused after that, because others took the room, they are `resuming` still.
        """
        asked = list(demands)
        if wrong := [one for one in asked if not isinstance(one, Demand)]:
            raise BadRequest(f"a step takes Demand(sequence, new), not {wrong[0]!r}")
        pairs = [(demand.sequence, demand.new) for demand in asked]
        return self._operations.demand(pairs, stream)

    # ------------------------------------------------------------------------- the cache itself

    def poll(self) -> None:
        """Take notice of what has ended: flights that landed or failed, slots out of quarantine."""
        self._operations.enter()
        self._journal.deliver()

    def wait(self, tickets: Iterable[int], *, timeout_s: float | None = None) -> bool:
        """Block until these tickets, of a `Busy`, have ended; those that have are let pass.

        With `timeout_s` wait for copies of fallible tiers no longer than that. Says whether all
        have ended.
        """
        self._operations.check_alive()
        asked, timeout_s = self._known(tickets), doors.seconds(timeout_s)
        for aside in self._store.copies.quarantined:
            if aside.ticket in asked:
                self.engine.wait(CALLER, dict([aside.fence]))
        are_over = self._store.flights.wait(asked, timeout_s)
        self.poll()
        return are_over

    def give_up(self, tickets: Iterable[int]) -> None:
        """Stop waiting for flights that do not end; a deadline is the caller's business.

        Their pages are as before, and sequences that waited for them are suspended. The slots that
        the copies may still write stay in quarantine until these have ended after all.
        """
        self._operations.enter()
        asked = self._known(tickets)
        with self._operations.committing():
            self._operations.upkeep.give_up(sorted(asked))

    def _known(self, tickets: Iterable[int]) -> set[int]:
        asked = doors.tickets(tickets)
        known = range(self._store.copies.tickets)
        if unknown := sorted(ticket for ticket in asked if ticket not in known):
            raise BadRequest(f"tickets {unknown} are not of this cache")
        return asked

    def reset(self) -> None:
        """Forget every key at once: from here on nothing is found that was committed before.

        For new weights, or another tokenizer. Pages in use live until their users are done with
        them, and what older sequences commit from now on nobody finds. Durable tiers can give
        nothing back but what is in use; if one cannot promise that it raises TierFailed: the keys
        are forgotten, and reset() may be repeated.
        """
        self._operations.enter()
        with self._operations.committing():
            self._operations.users.era += 1
            self._store.forget_keys()
        invalidate(self.config, self.engine.memories, self._store.ledger.pools)

    def resize(self, tier: str, slots: int | Mapping[str, int]) -> Outcome:
        """Have more or fewer slots on a tier, of every group or by name; all groups or none.

        Pages in slots that go are moved down, or given up, as a demand would. A pinned page there
        refuses it (`OutOfSlots`: so many pages asked to go, so many can; and whose the others are);
        copies under way from or to the tier make it `Busy`. Blocks until
        the device has finished. `memory(tier)` has another array afterwards; slots that stay keep
        their numbers. Adopted memory cannot be resized. `config` stays as it was written.
        """
        self._operations.enter()
        index = self._operations.tier(tier)
        counts = doors.slots(slots, self.config, least=1 if index == GPU else 0)
        change = Resizing(self._operations.demands, index, counts)
        change.check()
        try:
            with self._journal.holding():  # nobody comes between the plan and its run
                with self._operations.committing():
                    answer = change.prepare()
                if answer is None:
                    change.grow()
                    with self._operations.committing():
                        answer = change.apply()
        finally:
            self._journal.deliver()
        return answer

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with each batch of the journal, once its operation is over.

        Call what is returned to leave.
        """
        return self._journal.subscribe(subscriber)

    def stats(self) -> Stats:
        """Count slots, pages, events and copies so far."""
        self.poll()
        counters = self._counters
        return Stats(
            tiers=report.tiers(self._store.ledger, self.config.chain),
            events=dict(counters.events),
            copied=counters.copied_by_name(),
            saved=counters.saved_by_name(),
            reclaimed=counters.reclaimed,
            sequences=len(self._operations.users.sequences),
            observer_failures=self._journal.failures,
        )

    def flights(self) -> dict[int, tuple[str, str, int]]:
        """Say what is under way to and from fallible tiers: ticket -> source, target, pages.

        Nothing is polled: what has ended and was not noticed yet is among it.
        """
        names = [tier.name for tier in self.config.chain.tiers]
        return {
            ticket: (names[flight.source], names[flight.target], len(flight.pages))
            for ticket, flight in self._store.ledger.flights.items()
        }

    def available(self, tier: str, group: int = 0) -> int:
        """Say how many slots of a tier could be granted now (I7)."""
        self.poll()
        doors.group(self.config, group)
        return planner.available(self._store.ledger, self._operations.tier(tier), group)

    def memory(self, tier: str, group: int = 0) -> Any:  # noqa: ANN401 - the pool the user gave
        """Give the memory of a tier: `array` of a `HostPool`, `tensor` of a `DevicePool`."""
        if self.engine.memories is None:
            raise BadRequest("this cache has no memories: its engine moves nothing")
        return self.engine.memories[self._operations.tier(tier)][doors.group(self.config, group)]

    def snapshot(self, group: int = 0) -> Snapshot:
        """Say what the runtime believes, in the spec's words, for the audit invariants."""
        return report.snapshot(self._store.ledger, doors.group(self.config, group))

    def primaries(self, group: int = 0) -> dict[Hashable, str]:
        """Say on which tier each findable page has its warmest replica, by key."""
        names = [tier.name for tier in self.config.chain.tiers]
        found = self._store.ledger.found[doors.group(self.config, group)]
        return {key: names[page.primary] for key, page in found.items()}

    def close(self) -> None:
        """Close all sequences, finish the copies and return the memory. Idempotent; blocks.

        Copies that were given up are not waited for. Subscribers are told at the very end, when the
        cache takes no calls any more.
        """
        operations = self._operations
        if operations.is_closed:
            return
        try:
            with self._journal.holding():
                operations.finish()
        finally:
            operations.is_closed = True
            try:
                self.engine.close()
            finally:
                self._journal.deliver()


def _store(config: Config, engine: Engine, journal: Journal) -> Store:
    pools = [
        [SlotPool(count) for count in config.slots_of(tier.name)] for tier in config.chain.tiers
    ]
    warm = POLICIES[config.policy]()
    cold = [COLD_POLICIES[config.cold_policy]() for _ in config.chain.tiers[HOST + 1 :]]
    return Store(Ledger(config.chain, pools, [warm, warm, *cold], journal), engine)
