"""The cache: keys, prefixes, and who uses which page; the public face of kvtier.

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
caller itself (`stream=None`, `wait`, `close`) block.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kvtier import doors, planner, report
from kvtier.config import Config
from kvtier.errors import BadRequest, CacheClosed, WrongState
from kvtier.failstop import FailStop
from kvtier.journal import Journal, Subscriber
from kvtier.memories import check_memories, host_memories
from kvtier.outcomes import Busy, Granted, Outcome, OutOfSlots
from kvtier.pages import Page
from kvtier.planner import GPU, GroupDemand, Short
from kvtier.policy import POLICIES
from kvtier.sequence import Sequence, Track
from kvtier.slots import SlotPool
from kvtier.stats import Counters, Stats
from kvtier.store import Store
from kvtier.tiers import Memory
from kvtier.transfer import CALLER, CpuEngine, Engine
from kvtier_spec import ChainError, Checker, Phase, SequenceState, Snapshot


@dataclass(frozen=True, slots=True)
class Demand:
    """What one sequence asks of a step: to be active, with `new` more open pages."""

    sequence: Sequence
    new: int = 0


class Cache:
    """Pages on gpu and host, found by key, used through sequences.

    `memories` gives the memory of each tier, a list with one entry a group (by default numpy arrays
    for both, one standing for the gpu), for the cpu engine to copy between, at once. An `engine` of
    your own brings its memories along; a `NullEngine` has none.
    """

    def __init__(
        self,
        config: Config,
        *,
        engine: Engine | None = None,
        memories: Seq[Seq[Memory]] | None = None,
    ) -> None:
        self.config = config
        counts = [config.slots[tier.name] for tier in config.chain.tiers]
        if engine is None:
            engine = CpuEngine(host_memories(config) if memories is None else memories)
        check_memories(config, engine.memories, memories)
        self.engine = engine
        self._journal = Journal()
        self._counters = Counters(config.chain)
        self._journal.subscribe(self._counters)
        pools = [[SlotPool(count) for _ in config.groups] for count in counts]
        self._store = Store(pools, POLICIES[config.policy](), engine, self._journal)
        self._checker = Checker(config.chain, [counts for _ in config.groups])
        if config.audit:
            self._journal.auditor = self._checker.feed
        self._sequences: dict[int, Sequence] = {}
        self._next_sequence = 0
        self._closed = False
        self._stop = FailStop(self._journal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------ sequences

    def sequence(self, keys: Seq[Hashable] = ()) -> Sequence:
        """Look up a prompt: hold every page of it that any tier has; nothing is reordered.

        `keys` name the full blocks of the prompt, in order. `hits` of the sequence counts, by tier,
        the longest prefix that was found; pages behind the first miss are held too, until the
        sequence commits their keys or closes. O(keys).
        """
        self._enter()
        found = Sequence(self, self._next_sequence, doors.keys(keys), len(self.config.groups))
        self._next_sequence += 1
        names = [tier.name for tier in self.config.chain.tiers]
        found.hits = dict.fromkeys(names, 0)
        with self._commit():
            for track, index in zip(found.tracks, self._store.found, strict=True):
                self._store.hold(track.find(found.prompt, index))
            for page in found.tracks[0].pages:
                found.hits[names[page.primary]] += 1
            found.committed = len(found.tracks[0].pages)
            self._sequences[found.id] = found
        return found

    def step(self, demands: Iterable[Demand], *, stream: Hashable | None = None) -> Outcome:
        """Meet the demands of many sequences with one plan, all or nothing.

        Suspended sequences are resumed, active ones get their new pages appended. From here on all
        of them are used on `stream`; it is ordered after what an active one did on another.
        """
        return self.demand([(demand.sequence, demand.new) for demand in demands], stream)

    def demand(self, asked: Seq[tuple[Sequence, int]], stream: Hashable | None) -> Outcome:
        """Meet demands; `Sequence.resume`, `Sequence.append` and `step` all come here."""
        self._enter()
        lane = doors.lane(self.engine, stream)
        wishes = [self._wish(sequence, new) for sequence, new in asked]
        if len({sequence.id for sequence, _ in wishes}) < len(wishes):
            raise BadRequest("a sequence is asked for twice in one step; add its demands up")
        plan = planner.plan(self._store, self._demand_of(wishes))
        if isinstance(plan, Short):
            self._journal.deliver()
            return self._refusal(plan)
        with self._commit():
            opened = self._store.run(plan, lane)
            for sequence, new in wishes:
                self._activate(sequence, new, opened, stream)
        return Granted(plan.recalled, plan.evicted)

    def _wish(self, sequence: Sequence, new: int) -> tuple[Sequence, int]:
        """Check one sequence's part of a demand."""
        if not sequence.is_of(self):
            raise BadRequest(f"{sequence} is not of this cache")
        if sequence.state not in (SequenceState.SUSPENDED, SequenceState.ACTIVE):
            raise WrongState(f"{sequence} cannot take pages; make a new one with Cache.sequence()")
        return sequence, doors.count(new, "the number of new pages")

    def _demand_of(self, wishes: Seq[tuple[Sequence, int]]) -> list[GroupDemand]:
        demand = [GroupDemand() for _ in self.config.groups]
        for sequence, new in wishes:
            for group, part in enumerate(demand):
                if sequence.state is SequenceState.SUSPENDED:
                    part.pages += sequence.tracks[group].pages
                part.new += new
        return demand

    def commit(self, sequence: Sequence, keys: list[Hashable], stream: Hashable | None) -> None:
        """Commit the next open pages of a sequence (`Sequence.commit` has checked them)."""
        self._enter()
        fence = self.engine.record(doors.lane(self.engine, stream))
        first = sequence.committed
        with self._commit():
            for track in sequence.tracks:
                pages = track.pages[first : first + len(keys)]
                kept = self._store.commit(pages, keys, fence)
                track.pages[first : first + len(keys)] = kept
                taken, freed = track.settle(first, kept)
                self._store.hold(taken)
                self._store.unhold(freed)
            sequence.committed += len(keys)

    def trim(self, sequence: Sequence, count: int) -> None:
        """Drop the last open pages of a sequence (`Sequence.trim` has checked the count)."""
        self._enter()
        with self._commit():
            sequence.epoch += 1
            for track in sequence.tracks:
                gone = track.pages[len(track.pages) - count :]
                self._note_use(gone, sequence.stream)
                del track.pages[len(track.pages) - count :]
                self._store.drop(gone)

    def suspend(self, sequence: Sequence, stream: Hashable | None) -> None:
        """Unpin and hold the pages of a sequence (`Sequence.suspend` has checked it)."""
        self._enter()
        doors.lane(self.engine, stream)
        with self._commit():
            sequence.epoch += 1
            for track in sequence.tracks:
                self._note_use(track.pages, stream)
                twins = [page for page in track.pages if page.phase is Phase.TWIN]
                kept = [page for page in track.pages if page.phase is not Phase.TWIN]
                for position, mate in track.mates.items():
                    track.pages[position] = mate
                used = track.pages[::-1] if twins else ()
                self._store.rest(kept[::-1], hold=True, gone=twins, used=used)
                track.mates.clear()
            sequence.state = SequenceState.SUSPENDED

    def end(self, sequence: Sequence, stream: Hashable | None) -> None:
        """Close a sequence: private pages are dropped, all others given up, prompt tail coldest."""
        if self._stop.failure is not None or self._closed:
            sequence.epoch += 1
            sequence.state = SequenceState.CLOSED  # its pages went with the cache
            return
        self._enter()
        doors.lane(self.engine, stream)
        with self._commit():
            sequence.epoch += 1
            for group, track in enumerate(sequence.tracks):
                self._give_up(sequence, group, track, stream)
                track.pages, track.spare, track.mates = [], {}, {}
            sequence.committed = 0
            sequence.state = SequenceState.CLOSED
            del self._sequences[sequence.id]

    def _give_up(
        self, sequence: Sequence, group: int, track: Track, stream: Hashable | None
    ) -> None:
        shared, private = sequence.shared(group)[::-1], sequence.private(group)
        freed = [*track.spare.values(), *track.mates.values()]
        if sequence.state is not SequenceState.ACTIVE:
            self._store.unhold([*shared, *freed])
            self._store.drop(private)
            return
        self._note_use(track.pages, stream)
        used = [track.mates.get(at, page) for at, page in enumerate(track.pages)][::-1]
        self._store.rest(
            shared, hold=False, gone=private, freed=freed, used=used if track.mates else ()
        )

    # ------------------------------------------------------------------------- the cache itself

    def poll(self) -> None:
        """Take notice of what has ended: quarantined slots whose jobs are done come back."""
        self._enter()
        self._journal.deliver()

    def wait(self, tickets: Iterable[int] = ()) -> None:
        """Block until these tickets, of a `Busy`, have ended; those that have are let pass."""
        self._enter()
        asked, known = set(tickets), range(self._store.copies.tickets)
        if unknown := asked - set(known):
            raise BadRequest(f"tickets {sorted(unknown)} are not of this cache")
        for aside in self._store.copies.quarantined:
            if aside.ticket in asked:
                self.engine.wait(CALLER, dict([aside.fence]))
        self.poll()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with each batch of the journal, once its operation is over.

        Call what is returned to leave.
        """
        return self._journal.subscribe(subscriber)

    def stats(self) -> Stats:
        """Say what the cache holds and has done."""
        if self._stop.failure is None and not self._closed:
            self.poll()
        tiers = report.tiers(self._store, self.config.chain)
        counters, failures = self._counters, self._journal.failures
        return Stats(
            tiers=tiers,
            events=dict(counters.events),
            copied=counters.copied_by_name(),
            saved=counters.saved,
            reclaimed=counters.reclaimed,
            sequences=len(self._sequences),
            observer_failures=failures,
        )

    def available(self, tier: str, group: int = 0) -> int:
        """Say how many slots of a tier could be granted now (I7)."""
        self.poll()
        return planner.available(self._store, self._tier(tier), group)

    def memory(self, tier: str, group: int = 0) -> Any:  # noqa: ANN401 - the pool the user gave
        """Give the memory of a tier: `array` of a `HostPool`, `tensor` of a `DevicePool`."""
        if self.engine.memories is None:
            raise BadRequest("this cache has no memories: its engine moves nothing")
        return self.engine.memories[self._tier(tier)][group]

    def _tier(self, name: str) -> int:
        try:
            return self.config.chain.index(name)
        except ChainError as error:
            raise BadRequest(str(error)) from error

    def generations(self, group: int = 0) -> NDArray[np.int64]:
        """Give the generation of each gpu slot; a view, it changes as slots are taken."""
        return self._store.pools[GPU][group].generation

    def snapshot(self, group: int = 0) -> Snapshot:
        """Say what the runtime believes, in the spec's words, for the audit invariants."""
        return report.snapshot(self._store, group)

    def primaries(self, group: int = 0) -> dict[Hashable, str]:
        """Say on which tier each findable page has its warmest replica, by key."""
        names = [tier.name for tier in self.config.chain.tiers]
        return {key: names[page.primary] for key, page in self._store.found[group].items()}

    def close(self) -> None:
        """Close all sequences, finish the copies and return the memory. Idempotent; blocks.

        Subscribers are told at the very end, when the cache takes no calls any more.
        """
        if self._closed:
            return
        try:
            with self._journal.holding():
                self._finish()
        finally:
            self._closed = True
            self.engine.close()
        self._journal.deliver()

    def _finish(self) -> None:
        """Close all sequences and let all copies end; a cache that has stopped does neither."""
        if self._stop.failure is not None:
            return
        for sequence in list(self._sequences.values()):
            sequence.close()
        self.engine.synchronize()
        self._enter()

    # ---------------------------------------------------------------------------------- inside

    def check_alive(self) -> None:
        """Raise if the cache has stopped or was closed."""
        self._stop.check()
        if self._closed:
            raise CacheClosed("this cache was closed; open a new one")

    def _enter(self) -> None:
        """Begin an operation: the cache is alive, and what has ended is known.

        Observers are told of it when the operation is over: they may call the cache, and must not
        change what the caller of this one has just looked at.
        """
        self.check_alive()
        if self._store.copies.quarantined:
            with self._stop.guard():
                self._store.copies.poll()

    @contextmanager
    def _commit(self) -> Iterator[None]:
        """Change state, then tell the observers."""
        try:
            with self._stop.guard():
                yield
        finally:
            if self._stop.failure is None:
                self._journal.deliver()

    def _activate(
        self, sequence: Sequence, new: int, opened: list[list[Page]], stream: Hashable | None
    ) -> None:
        if sequence.state is SequenceState.ACTIVE and sequence.stream != stream:
            self._change_stream(sequence, stream)
        for track, fresh in zip(sequence.tracks, opened, strict=True):
            track.pages += fresh[:new]
            del fresh[:new]
        sequence.state = SequenceState.ACTIVE
        sequence.stream = stream

    def _change_stream(self, sequence: Sequence, stream: Hashable | None) -> None:
        """Hand the use on an active sequence's old stream on, and order the new one after it.

        The slots know all that the new stream must wait for, recalls that the old one never used
        among it.
        """
        for track in sequence.tracks:
            self._note_use(track.pages, sequence.stream)
            self._store.copies.order_user(track.pages, self.engine.lane(stream))

    def _note_use(self, pages: Seq[Page], stream: Hashable | None) -> None:
        if stream is not None:
            self._store.copies.note_use(pages, self.engine.record(self.engine.lane(stream)))

    def _refusal(self, short: Short) -> Outcome:
        if short.later >= short.asked:
            return Busy(tuple(aside.ticket for aside in self._store.copies.quarantined))
        holders = (sequence.holder(short.group) for sequence in self._sequences.values())
        return OutOfSlots(
            self.config.chain.tiers[short.tier].name,
            self.config.groups[short.group].name,
            short.asked,
            short.available,
            tuple(holder for holder in holders if holder.pinned or holder.held),
        )
