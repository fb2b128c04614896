"""Drive a cache by plain calls, with an oracle beside it and every invariant after each.

A call is a tuple of plain values: ("resume", sequence, new, fail). `calls()` lists those that make
sense now, legal or to be refused; `do()` performs one and judges the result. Hypothesis, the
planted faults and the seeded walk all use this one driver, so a counterexample is a list of tuples
that can be pasted.

The calls themselves are in `acts.py`. The oracle is the spec: the trace checker follows the journal
(`audit`), and the runtime's snapshot is compared with the world that the journal describes. Bytes
are the second oracle: with the cpu engine every sequence has a stream, on which open pages are
written and pinned pages compared as a kernel would, whenever the engine is pumped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kvtier import (
    BadRequest,
    Busy,
    Cache,
    Config,
    CpuEngine,
    NullEngine,
    OutOfSlots,
    WrongState,
)
from kvtier.tiers import HostPool
from kvtier_spec import Batch, Chain, Kind, SequenceState, SlotState, Tier
from kvtier_spec.sequence import ROWS
from model_tests.universe import (
    MAX_SEQUENCES,
    NEW,
    PROMPTS,
    Call,
    Fail,
    FlakyPool,
    Setup,
    User,
)

MOVES = {(before, after) for (before, _), after in ROWS.items()}
"""The moves that the spec's sequence machine allows."""

HOW_JOBS_END = ("none", "first", "all", "unread")
"""Which pages fail, and how: a page that cannot be read down from a fallible tier is lost there."""

REST_POLLS = 2
"""A run is short: tiers that fail are asked again soon."""
POLLS = 64
"""Polls after which a cache must be at rest while nothing else happens."""


class Driver:
    """One cache under test."""

    chain: Chain | None = None
    """The chain, where it is not one of the usual ones."""
    factories: Mapping[str, Any] = {}
    """Classes of tiers by name; by default host memory, flaky where the tier may fail."""

    def __init__(self, setup: Setup) -> None:
        config = Config(
            slots=setup.slots,
            chain=self.chain or setup.chain,
            policy=setup.policy,
            cold_policy=setup.cold_policy,
            demote=setup.demote,
            clean_low=1,
            clean_high=1,
            audit=True,
            groups=setup.groups,
        )
        self.setup = setup
        self.counts = dict(setup.slots)
        self.has_bytes = setup.engine != "null"
        sizes = [group.page_bytes for group in setup.groups]
        self.memories = [
            [self._class_of(tier)(count, size) for size in sizes]
            for tier, count in zip(config.chain.tiers, setup.slots.values(), strict=True)
        ]
        self.engine: Any = NullEngine(sizes)
        if self.has_bytes:
            is_late = setup.engine == "late"
            self.engine = CpuEngine(self.memories, is_manual=is_late, job_threads=0)
        self.cache = Cache(config, engine=self.engine)
        self.cache._store.flights.most_rest = REST_POLLS  # noqa: SLF001
        self.cache._operations.upkeep.most_idle = REST_POLLS  # noqa: SLF001
        self.broken: list[str] = []
        self.waits: list[tuple[int, ...]] = []
        self.committed: set[tuple[int, int]] = set()
        self.batches = 0
        self.cache._journal.auditor = self._audit  # noqa: SLF001
        self.users: list[User] = []
        self.token = 0
        self.refused = 0
        from model_tests.acts import Acts

        self.acts = Acts(self)

    def _class_of(self, tier: Tier) -> Any:
        return self.factories.get(tier.name, FlakyPool if tier.fallible else HostPool)

    @property
    def ledger(self) -> Any:
        """The books of the cache."""
        return self.cache._store.ledger  # noqa: SLF001

    @property
    def groups(self) -> range:
        """The groups, by number."""
        return range(len(self.setup.groups))

    # ---------------------------------------------------------------------------------- calls

    def calls(self) -> dict[str, list[Call]]:
        """List what may be called now, by name; a refusal is a legal outcome."""
        by_name: dict[str, list[Call]] = {}
        for call in self._all_calls():
            by_name.setdefault(call[0], []).append(call)
        return by_name

    def _all_calls(self) -> list[Call]:
        found: list[Call] = [("pump", lane) for lane in self._lanes()]
        for job in self._jobs():
            found += [("finish", job, failed) for failed in HOW_JOBS_END]
        found += [("wait", tickets) for tickets in self.waits[:1]]
        if len(self.users) < MAX_SEQUENCES:
            found += [("sequence", prompt) for prompt in range(len(PROMPTS))]
        for index, user in enumerate(self.users):
            found += self._calls_of(index, user)
        suspended = [i for i, u in enumerate(self.users) if _is(u, SequenceState.SUSPENDED)]
        active = [i for i, u in enumerate(self.users) if _is(u, SequenceState.ACTIVE)]
        if len(self.users) > 1 and suspended + active:
            found += [("step", tuple(suspended + active), new) for new in (0, 1)]
        return [*found, *self._calls_of_cache()]

    def _calls_of_cache(self) -> list[Call]:
        found: list[Call] = [("reset",), ("poll",)]
        for name, count in self.counts.items():
            least = 1 if name == "gpu" else 0
            some = {max(least, count - 2), max(least, count - 1), count + 1, least}
            found += [("resize", name, few) for few in sorted(some)]
        flights = sorted(self.ledger.flights)
        found += [("give_up", ticket) for ticket in flights if self.setup.engine == "late"]
        if self.setup.engine == "cpu" and self.setup.colder:
            flaky = [isinstance(tier[0], FlakyPool) for tier in self.memories]
            found += [("flaky", tier, 1) for tier, is_flaky in enumerate(flaky) if is_flaky]
        return found

    def _calls_of(self, index: int, user: User) -> list[Call]:
        sequence = user.sequence
        fails: list[Fail] = [None]
        if self.has_bytes:
            fails += [(1, 0), (1, 1), (2, 1)]
        found: list[Call] = [("close", index), ("suspend", index)]
        if sequence.state is SequenceState.RESUMING:
            return [*found, ("resume", index, sequence.wish, None), ("resume", index, 9, None)]
        if sequence.state is SequenceState.SUSPENDED:
            found += [("resume", index, new, fail) for new in NEW for fail in fails]
            found += [
                ("prefetch", index, tier, moving)
                for tier in list(self.counts)[:-1]
                for moving in (0, 2)
            ]
            return found
        found += [("append", index, new, fail) for new in NEW[1:] for fail in fails[:3]]
        found += [("commit", index, count) for count in range(1, sequence.open + 2)]
        found += [("trim", index, count) for count in range(1, sequence.open + 2)]
        found += [("resume", index, 1, None)]
        if self.has_bytes:
            found += [("read", index), ("write", index)]
        return found

    def _lanes(self) -> list[int]:
        return self.engine.runnable() if self.setup.engine == "late" else []

    def _jobs(self) -> list[int]:
        return self.engine.finishable() if self.setup.engine == "late" else []

    def do(self, call: Call) -> None:
        """Perform one call, then check everything."""
        self.settle()  # every call begins with a poll, which may end flights and start others
        before = self.fingerprint()
        states = {user.sequence: user.sequence.state for user in self.users}
        name, *arguments = call
        try:
            outcome = getattr(self.acts, name)(*arguments)
        except (WrongState, BadRequest):
            outcome = None
            self._changed_nothing(call, before)
        if isinstance(outcome, Busy):
            self._busy_means_later(call, outcome, before)
        if isinstance(outcome, OutOfSlots):
            self.refused += 1
            self._changed_nothing(call, before)
            assert outcome.asked > outcome.available, f"I11: {outcome} although there is room"
        for sequence, was in states.items():
            assert was is sequence.state or (was, sequence.state) in MOVES, f"{was} to {sequence}"
        self.check()

    def settle(self) -> None:
        """Poll until nothing happens any more by itself, tiers that are left alone included."""
        quiet = 0
        for _ in range(POLLS):
            before = self.batches
            self.cache.poll()
            quiet = quiet + 1 if before == self.batches else 0
            if quiet > REST_POLLS:
                return
        raise AssertionError("the cache never comes to rest")

    def _busy_means_later(self, call: Call, busy: Busy, before: tuple[Any, ...]) -> None:
        """I11: busy because of something that is under way; I8: nobody's pages have changed."""
        assert busy.tickets, "busy with nothing to wait for"
        store = self.cache._store  # noqa: SLF001
        running = {*self.ledger.flights, *(f.ticket for f in store.flights.given_up.values())}
        running |= {aside.ticket for aside in store.copies.quarantined}
        assert set(busy.tickets) <= running, f"busy with {busy}, under way is {running}"
        self.waits.append(busy.tickets)
        resuming = any(_is(user, SequenceState.RESUMING) for user in self.users)
        if not resuming:
            assert self.user_counts() == before[-1], f"I8: {call} is busy and changed pins or holds"

    # ------------------------------------------------------------------------------ invariants

    def check(self) -> None:
        """Check every invariant that can be seen from outside."""
        snapshots = [self.cache.snapshot(group) for group in self.groups]
        violations = self.cache._checker.check(snapshots)  # noqa: SLF001
        assert not violations, "; ".join(map(str, violations))
        assert not self.broken, self.broken[0]
        for tier in self.ledger.pools:
            for pool in tier:
                pool.check()
        self._accounts()
        self._cleaning_order()
        if self.has_bytes:
            self._order_is_known()
        for user in self.users:
            if _is(user, SequenceState.ACTIVE):
                self._slots_stay(user)

    def _cleaning_order(self) -> None:
        """I3: the cleaner sees exactly the primaries above a fallible tier without a copy below."""
        for tier in range(1, len(self.ledger.pools) - 1):
            for group in self.groups:
                seen = {page.id for page in self.ledger.unclean[tier][group]}
                expected = {
                    page.id
                    for page in self.ledger.pages[group].values()
                    if page.slots[tier] is not None
                    and [slot is not None for slot in page.slots].count(True) == 1
                    and page.flight is None
                }
                assert seen == expected, f"I3: to be written on tier {tier}: {seen}, not {expected}"
        for tier in range(len(self.ledger.pools) if self.setup.colder else 0):
            for group in self.groups:
                held = [p for p in self.ledger.pages[group].values() if p.holds]
                known = set(self.ledger.held[tier][group])
                assert known == {page for page in held if page.primary == tier}, "I3: held"

    def _slots_stay(self, user: User) -> None:
        sequence = user.sequence
        now = [
            dict(enumerate(sequence.slots(group).tolist(), sequence.first(group)))
            for group in self.groups
        ]
        for known, slots in zip(user.slots or [], now, strict=False):
            common = [at for at in known if at in slots and at < sequence.committed]
            moved = [at for at in common if known[at] != slots[at]]
            assert not moved, f"I4: slots of {sequence} changed at {moved}"
        for group, slots in zip(self.setup.groups, now, strict=True):
            lost = set(range(group.first_needed(sequence.committed), sequence.committed))
            assert lost <= set(slots), f"I10: {sequence} lacks {lost - set(slots)} of {group.name}"
        user.slots = now

    def _order_is_known(self) -> None:
        """I2: nothing queued races, and every queued copy is fenced in, or its slot set aside."""
        assert not (found := self.engine.races()), f"I2: {found}"
        pools = self.ledger.pools
        for job in self.engine.queued():
            lane, number = job.fence
            for use in job.uses if job.name == "a copy" else ():
                pool = pools[use.tier][use.group]
                known = pool.fences_to_write(np.array([use.slot])).get(lane, 0) >= number
                aside = pool.states()[use.slot] is SlotState.QUARANTINED
                assert known or aside, f"I2: slot {use} does not know the copy that uses it"

    def _accounts(self) -> None:
        counted: dict[tuple[int, int], int] = {}
        copied = self.cache._counters.copied  # noqa: SLF001
        for (source, target, group), pages in copied.items():
            size = pages * self.setup.groups[group].page_bytes
            counted[source, target] = counted.get((source, target), 0) + size
        engine = {pair: size for pair, size in self.engine.copied().items() if size}
        journal = {pair: size for pair, size in counted.items() if size}
        assert engine == journal, f"I14: the engine counts {engine} bytes, the journal {journal}"

    def _audit(self, batch: Batch) -> None:
        """Judge a batch as it is written: by the spec, and by what the policy promised."""
        self.batches += 1
        checker = self.cache._checker  # noqa: SLF001
        left = {
            min(checker._groups[record.group].pages[page].state.valid)  # noqa: SLF001
            for record in batch
            if record.kind is Kind.DROP
            for page in record.pages
            if (record.group, page) in self.committed
        }
        self._feed(batch)
        self._watch_policy(batch, evicts=bool(left & {0, 1}))

    def _feed(self, batch: Batch) -> None:
        self.cache._checker.feed(batch)  # noqa: SLF001

    def _watch_policy(self, batch: Batch, *, evicts: bool) -> None:
        """I9, at each clear stage: what a full host gives up is what the policy says."""
        kinds = {record.kind for record in batch}
        if not kinds <= {Kind.RELEASE, Kind.DROP} or self.acts.resizes or self.acts.lifts:
            return
        group, releases = batch[0].group, [r for r in batch if r.kind is Kind.RELEASE]
        evicts |= any(r.target == 1 and r.is_eviction for r in releases)
        reclaims = any(r.target == 1 and not r.is_eviction for r in releases)
        bound = {page for r in batch if r.is_eviction or r.kind is Kind.DROP for page in r.pages}
        shadows = [p.id for p in self.ledger.reclaimable[1][group] if p.id not in bound]
        unheld = [p.id for p in self.ledger.evictable[1][group] if not p.holds]
        pages = [page for page in unheld if page not in bound]
        if self.setup.policy.startswith("shadow_first") and evicts and shadows:
            self.broken.append(f"I9: a page is evicted while shadows {shadows} stand")
        if self.setup.policy == "page_first" and reclaims and pages:
            self.broken.append(f"I9: a shadow is reclaimed while pages {pages} could go")

    def fingerprint(self) -> tuple[Any, ...]:
        """Everything that a refused call must leave alone (I8); pins and holds come last."""
        snapshots = [self.cache.snapshot(group) for group in self.groups]
        self.committed = {
            (group, page)
            for group, snapshot in enumerate(snapshots)
            for page in snapshot.found.values()
        }
        states = [(u.sequence.state, u.sequence.committed, u.sequence.open) for u in self.users]
        flights = sorted(self.ledger.flights)
        return snapshots, self.orders(), states, flights, self.user_counts()

    def orders(self) -> list[list[int]]:
        """The pages of every order, coldest first."""
        every = [*self.ledger.evictable, *self.ledger.reclaimable]
        return [[page.id for page in order] for tier in every for order in tier]

    def user_counts(self) -> list[tuple[dict[int, int], dict[int, int]]]:
        """Pins and holds of every page that has users, by group."""
        found = []
        for group in self.groups:
            says = self.cache.snapshot(group)
            users = {page for page in says.pins if says.pins[page] or says.holds[page]}
            found.append(({p: says.pins[p] for p in users}, {p: says.holds[p] for p in users}))
        return found

    def world(self, group: int = 0) -> Any:
        """The world that the journal describes."""
        return self.cache._checker.world(group)  # noqa: SLF001

    def _changed_nothing(self, call: Call, before: tuple[Any, ...]) -> None:
        assert self.fingerprint() == before, f"I8: the refused call {call} changed something"

    def finish(self) -> None:
        """End the run: close everything, drain, and find nothing left (I13).

        Copies that are still late happen last, and what is pinned is read once more after them.
        """
        for _ in range(2):
            for index, user in enumerate(self.users):
                if _is(user, SequenceState.ACTIVE):
                    self.acts.read(index)
            while lanes := self._lanes():
                self.acts.pump(lanes[-1])
        while self.users:
            self.acts.close(0)
        self._drain()
        self.check()
        assert not (left := self.cache._checker.quiescent()), left  # noqa: SLF001
        assert not self.ledger.flights, "I13: a flight is left"
        for name, count in self.counts.items():
            for group in self.groups:
                found = self.cache.available(name, group)
                assert found == count, f"I13: {name} has {found} slots of {count}"
        self.cache.close()

    def _drain(self) -> None:
        """Let everything end, flights that the cleaner begins meanwhile among it."""
        for _ in range(POLLS):
            self.engine.synchronize()
            for job in self._jobs():
                self.engine.finish(job)
            self.settle()
            if not self.ledger.flights and not self.cache._store.flights.given_up:  # noqa: SLF001
                return
        raise AssertionError("I13: flights never end")


def _is(user: User, state: SequenceState) -> bool:
    return user.sequence.state is state
