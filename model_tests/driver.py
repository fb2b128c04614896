"""Drive a cache by plain calls, with an oracle beside it and every invariant after each.

A call is a tuple of plain values: ("resume", sequence, new, fail). `calls()` lists those that make
sense now, legal or to be refused; `do()` performs one and judges the result. Hypothesis, the
planted faults and the seeded walk all use this one driver, so a counterexample is a list of tuples
that can be pasted.

The oracle is the spec: the trace checker follows the journal (`audit`), and the runtime's snapshot
is compared with the world that the journal describes. Bytes are the second oracle: with the cpu
engine every sequence has a stream, on which open pages are written and pinned pages compared as a
kernel would, whenever the engine is pumped.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from contextlib import nullcontext
from typing import Any

import numpy as np

from kvtier import (
    BadRequest,
    Busy,
    Cache,
    Config,
    CopyFailed,
    CpuEngine,
    Demand,
    Granted,
    Group,
    NullEngine,
    OutOfSlots,
    Sequence,
    WrongState,
)
from kvtier.tiers import HostPool
from kvtier_spec import Batch, Kind, Phase, SequenceState, SlotState
from kvtier_spec.sequence import ROWS
from model_tests.universe import (
    MAX_SEQUENCES,
    NEW,
    PAGE_BYTES,
    PROMPTS,
    Call,
    Fail,
    Setup,
    User,
    key_of,
    rows_of,
    token_of,
)

MOVES = {(before, after) for (before, _), after in ROWS.items()}
"""The moves that the spec's sequence machine allows."""


class Driver:
    """One cache under test."""

    def __init__(self, setup: Setup) -> None:
        config = Config(
            slots={"gpu": setup.gpu, "host": setup.host},
            policy=setup.policy,
            audit=True,
            groups=(Group(page_bytes=PAGE_BYTES),),
        )
        self.setup = setup
        self.has_bytes = setup.engine != "null"
        counts = (setup.gpu, setup.host)
        self.memories = [[HostPool(count, PAGE_BYTES)] for count in counts]
        self.engine: Any = NullEngine([PAGE_BYTES])
        if self.has_bytes:
            self.engine = CpuEngine(self.memories, is_manual=setup.engine == "late")
        self.cache = Cache(config, engine=self.engine)
        self.broken: list[str] = []
        self.waits: list[tuple[int, ...]] = []
        self.committed: set[int] = set()
        self.cache._journal.auditor = self._audit  # noqa: SLF001
        self.users: list[User] = []
        self.token = 0
        self.refused = 0

    # ---------------------------------------------------------------------------------- calls

    def calls(self) -> dict[str, list[Call]]:
        """List what may be called now, by name; a refusal is a legal outcome."""
        by_name: dict[str, list[Call]] = {}
        for call in self._all_calls():
            by_name.setdefault(call[0], []).append(call)
        return by_name

    def _all_calls(self) -> list[Call]:
        found: list[Call] = [("pump", lane) for lane in self._lanes()]
        found += [("wait", tickets) for tickets in self.waits[:1]]
        if len(self.users) < MAX_SEQUENCES:
            found += [("sequence", prompt) for prompt in range(len(PROMPTS))]
        for index, user in enumerate(self.users):
            found += self._calls_of(index, user.sequence)
        suspended = [i for i, u in enumerate(self.users) if _is(u, SequenceState.SUSPENDED)]
        active = [i for i, u in enumerate(self.users) if _is(u, SequenceState.ACTIVE)]
        if len(self.users) > 1:
            found += [("step", tuple(suspended + active), new) for new in (0, 1)]
        return found or [("poll",)]

    def _calls_of(self, index: int, sequence: Sequence) -> list[Call]:
        fails: list[Fail] = [None]
        if self.has_bytes:
            fails += [(1, 0), (1, 1), (2, 1)]
        found: list[Call] = [("close", index)]
        if sequence.state is SequenceState.SUSPENDED:
            found += [("resume", index, new, fail) for new in NEW for fail in fails]
            found.append(("suspend", index))
        else:
            found += [("append", index, new, fail) for new in NEW[1:] for fail in fails[:3]]
            found += [("commit", index, count) for count in range(1, sequence.open + 2)]
            found += [("trim", index, count) for count in range(1, sequence.open + 2)]
            found += [("suspend", index), ("resume", index, 1, None)]
            if self.has_bytes:
                found += [("read", index), ("write", index)]
        return found

    def _lanes(self) -> list[int]:
        return self.engine.runnable() if self.setup.engine == "late" else []

    def do(self, call: Call) -> None:
        """Perform one call, then check everything."""
        self.cache.poll()  # which every call begins with, and which may readmit slots
        before = self.fingerprint()
        states = {user.sequence: user.sequence.state for user in self.users}
        name, *arguments = call
        try:
            outcome = getattr(self, name)(*arguments)
        except (WrongState, BadRequest):
            outcome = None
            self._changed_nothing(call, before)
        if isinstance(outcome, Busy):
            self._changed_nothing(call, before)
            self._busy_means_later(outcome)
        if isinstance(outcome, OutOfSlots):
            self.refused += 1
            self._changed_nothing(call, before)
            assert outcome.asked > outcome.available, f"I11: {outcome} although there is room"
        for sequence, was in states.items():
            assert was is sequence.state or (was, sequence.state) in MOVES, f"{was} to {sequence}"
        self.check()

    def _busy_means_later(self, busy: Busy) -> None:
        """I11: a demand is busy because of slots set aside, and only while they are."""
        assert busy.tickets, "busy with nothing to wait for"
        counts = [self.cache.stats().tiers[tier].slots for tier in ("gpu", "host")]
        assert any(count[SlotState.QUARANTINED] for count in counts), "busy, and nothing is aside"
        self.waits.append(busy.tickets)

    def wait(self, tickets: tuple[int, ...]) -> None:
        """Wait for the tickets of a busy demand; they have ended then."""
        self.waits.remove(tickets)
        self.cache.wait(tickets)
        left = {aside.ticket for aside in self.cache._store.copies.quarantined}  # noqa: SLF001
        assert not left & set(tickets), f"waited for {tickets}, still aside: {left}"

    def sequence(self, prompt: int) -> None:
        """Look a prompt up; the hit is the longest prefix that the journal says is there (I10)."""
        found = {page.key for page in self.world().pages if page.state.phase is Phase.COMMITTED}
        keys = PROMPTS[prompt]
        expected = next((i for i, key in enumerate(keys) if key not in found), len(keys))
        order = self.orders()
        sequence = self.cache.sequence(keys)
        assert sequence.matched == expected, f"I10: {sequence.matched} hits, not {expected}"
        self.users.append(User(sequence))
        sequence.close()
        assert self.orders() == order, "R5: looking a prompt up and closing it reordered pages"
        self.users[-1] = User(self.cache.sequence(keys))

    def resume(self, index: int, new: int, fail: Fail) -> Any:
        """Resume, perhaps with a failing submission; write the new pages and read all others."""
        user = self.users[index]
        if user.sequence.state is not SequenceState.SUSPENDED:
            return user.sequence.resume(new, stream=user.stream)
        outcome = self._failing(lambda: user.sequence.resume(new, stream=user.stream), fail)
        if isinstance(outcome, Granted):
            self._activated(user, new)
        return outcome

    def append(self, index: int, new: int, fail: Fail) -> Any:
        """Append; granted exactly when the planner says that so many are available (I7)."""
        user = self.users[index]
        available = self.cache.available("gpu")
        outcome = self._failing(lambda: user.sequence.append(new), fail)
        if isinstance(outcome, Granted | Busy | OutOfSlots):
            assert bool(outcome) == (new <= available), f"I7: {new} of {available}: {outcome}"
        if isinstance(outcome, Granted):
            self._activated(user, new)
        return outcome

    def step(self, indices: tuple[int, ...], new: int) -> Any:
        """Ask for several sequences at once."""
        users = [self.users[index] for index in indices]
        outcome = self.cache.step(
            [Demand(user.sequence, new) for user in users], stream=users[0].stream
        )
        if isinstance(outcome, Granted):
            for user in users:
                self._activated(user, new)
        return outcome

    def commit(self, index: int, count: int) -> None:
        """Write the next open pages and commit them under the keys that follow."""
        user = self.users[index]
        sequence = user.sequence
        keys = [key_of(sequence, sequence.committed + i) for i in range(count)]
        if count <= sequence.open:
            slots = sequence.slots()[sequence.committed : sequence.committed + count]
            self._write(user, slots, [token_of(key) for key in keys])
            del user.tokens[:count]
        sequence.commit(keys, stream=self._stream(user))

    def trim(self, index: int, count: int) -> None:
        """Give back open pages."""
        user = self.users[index]
        user.sequence.trim(count)
        del user.tokens[len(user.tokens) - count :]

    def read(self, index: int) -> None:
        """Compare all pinned pages on the sequence's stream, as a kernel would read them."""
        self._read(self.users[index])

    def write(self, index: int) -> None:
        """Write all open pages anew."""
        user = self.users[index]
        user.tokens = [self._next_token() for _ in user.tokens]
        self._write(user, user.sequence.slots()[user.sequence.committed :], user.tokens)

    def suspend(self, index: int) -> None:
        """Suspend."""
        user = self.users[index]
        user.sequence.suspend()
        user.slots = None

    def close(self, index: int) -> None:
        """Close."""
        self.users.pop(index).sequence.close()

    def pump(self, lane: int) -> None:
        """Let one job of a lane happen."""
        self.engine.pump(lane)

    def poll(self) -> None:
        """Poll."""
        self.cache.poll()

    def _failing(self, act: Any, fail: Fail) -> Any:
        """Perform a call whose submission may fail: pins and holds are then as before (I8)."""
        users = self.user_counts()
        context = nullcontext() if fail is None else self.engine.failing(at=fail[0], queued=fail[1])
        try:
            with context:
                return act()
        except CopyFailed:
            assert self.user_counts() == users, "I8: a failed copy changed pins or holds"
            return None

    def _activated(self, user: User, new: int) -> None:
        opened = user.sequence.slots()[len(user.sequence.slots()) - new :]
        fresh = [self._next_token() for _ in range(new)]
        self._write(user, opened, fresh)
        user.tokens += fresh

    def _next_token(self) -> int:
        self.token += 1
        return self.token

    # ---------------------------------------------------------------------------------- bytes

    def _stream(self, user: User) -> str | None:
        return user.sequence.stream  # type: ignore[return-value]

    def _write(self, user: User, slots: Any, tokens: Seq[int]) -> None:
        if self.has_bytes and len(slots):
            data = rows_of(tokens)
            stream, memory = user.sequence.stream, self.memories[0][0]
            self.engine.launch(stream, lambda: memory.write(slots, data), writes=slots)

    def _read(self, user: User) -> None:
        """Compare all pinned pages on the sequence's stream."""
        if not self.has_bytes:
            return
        sequence, slots = user.sequence, user.sequence.slots()
        keys = [token_of(key_of(sequence, i)) for i in range(sequence.committed)]
        expected = rows_of([*keys, *user.tokens])

        def compare() -> None:
            found = self.memories[0][0].read(slots)
            assert np.array_equal(found, expected), f"wrong bytes in slots {slots} of {sequence}"

        if len(slots):
            self.engine.launch(sequence.stream, compare, reads=slots)

    # ------------------------------------------------------------------------------ invariants

    def check(self) -> None:
        """Check every invariant that can be seen from outside."""
        violations = self.cache._checker.check([self.cache.snapshot()])  # noqa: SLF001
        assert not violations, "; ".join(map(str, violations))
        assert not self.broken, self.broken[0]
        for tier in self.cache._store.pools:  # noqa: SLF001
            tier[0].check()
        self._accounts()
        if self.has_bytes:
            self._order_is_known()
        for user in self.users:
            if user.sequence.state is SequenceState.ACTIVE:
                self._slots_stay(user)

    def _slots_stay(self, user: User) -> None:
        slots = user.sequence.slots().tolist()
        known = user.slots or []
        common = min(len(known), len(slots), user.sequence.committed)
        assert slots[:common] == known[:common], f"I4: slots of {user.sequence} changed"
        user.slots = slots

    def _order_is_known(self) -> None:
        """I2: nothing queued races, and every queued copy is fenced in, or its slot set aside."""
        assert not (found := self.engine.races()), f"I2: {found}"
        pools = self.cache._store.pools  # noqa: SLF001
        for job in self.engine.queued():
            lane, number = job.fence
            for use in job.uses if job.name == "a copy" else ():
                pool = pools[use.tier][0]
                known = pool.fences_to_write(np.array([use.slot])).get(lane, 0) >= number
                aside = pool.states()[use.slot] is SlotState.QUARANTINED
                assert known or aside, f"I2: slot {use} does not know the copy that uses it"

    def _accounts(self) -> None:
        stats = self.cache.stats()
        engine = self.engine.copied()
        for source, target in ((0, 1), (1, 0)):
            names = ("gpu", "host")[source], ("gpu", "host")[target]
            journal = stats.copied.get(names, 0) * PAGE_BYTES
            assert engine[source, target] == journal, f"I14: {engine} bytes, the journal {journal}"

    def _audit(self, batch: Batch) -> None:
        """Judge a batch as it is written: by the spec, and by what the policy promised."""
        self.cache._checker.feed(batch)  # noqa: SLF001
        self._watch_policy(batch)

    def _watch_policy(self, batch: Batch) -> None:
        """I9, at each clear stage: what a full host gives up is what the policy says."""
        kinds = {record.kind for record in batch}
        if not kinds <= {Kind.RELEASE, Kind.DROP}:
            return
        store = self.cache._store  # noqa: SLF001
        bound = {page for record in batch if record.target == 0 for page in record.pages}
        evicts = any(set(r.pages) & self.committed for r in batch if r.kind is Kind.DROP)
        reclaims = any(r.kind is Kind.RELEASE and r.target == 1 for r in batch)
        shadows = [page.id for page in store.reclaimable[1][0] if page.id not in bound]
        pages = [page.id for page in store.evictable[1][0] if page.id not in bound]
        if self.setup.policy.startswith("shadow_first") and evicts and shadows:
            self.broken.append(f"I9: a page is evicted while shadows {shadows} stand")
        if self.setup.policy == "page_first" and reclaims and pages:
            self.broken.append(f"I9: a shadow is reclaimed while pages {pages} could go")

    def fingerprint(self) -> tuple[Any, ...]:
        """Everything that a refused call must leave alone (I8)."""
        snapshot = self.cache.snapshot()
        self.committed = set(snapshot.found.values())
        states = [(u.sequence.state, u.sequence.committed, u.sequence.open) for u in self.users]
        return snapshot, self.orders(), states

    def orders(self) -> list[list[int]]:
        """The pages of every order, coldest first."""
        store = self.cache._store  # noqa: SLF001
        both = [*store.evictable, *store.reclaimable]
        return [[page.id for page in tier[0]] for tier in both]

    def user_counts(self) -> tuple[dict[int, int], dict[int, int]]:
        """Pins and holds of every page."""
        snapshot = self.cache.snapshot()
        users = {page for page in snapshot.pins if snapshot.pins[page] or snapshot.holds[page]}
        return ({p: snapshot.pins[p] for p in users}, {p: snapshot.holds[p] for p in users})

    def world(self) -> Any:
        """The world that the journal describes."""
        return self.cache._checker.world()  # noqa: SLF001

    def _changed_nothing(self, call: Call, before: tuple[Any, ...]) -> None:
        assert self.fingerprint() == before, f"I8: the refused call {call} changed something"

    def finish(self) -> None:
        """End the run: close everything, drain, and find nothing left (I13).

        Copies that are still late happen last, and what is pinned is read once more after them.
        """
        for _ in range(2):
            for user in self.users:
                if user.sequence.state is SequenceState.ACTIVE:
                    self._read(user)
            while lanes := self._lanes():
                self.pump(lanes[-1])
        while self.users:
            self.close(0)
        self.engine.synchronize()
        self.cache.poll()
        self.check()
        assert not (left := self.cache._checker.quiescent()), left  # noqa: SLF001
        assert self.cache.available("gpu") == self.setup.gpu, "I13: gpu slots are missing"
        assert self.cache.available("host") == self.setup.host, "I13: host slots are missing"
        self.cache.close()


def populate(driver: Driver, prompt: int, end: str) -> None:
    """Run a prompt: look it up, resume, commit, then close or suspend; skipped where it cannot."""
    if len(driver.users) == MAX_SEQUENCES:
        return
    driver.sequence(prompt)
    sequence = driver.users[-1].sequence
    index, new = len(driver.users) - 1, len(sequence.prompt) - sequence.matched
    if driver.resume(index, new, None):
        if new:
            driver.commit(index, new)
        if end == "suspend":
            driver.suspend(index)
            return
    driver.close(index)


def _is(user: User, state: SequenceState) -> bool:
    return user.sequence.state is state
