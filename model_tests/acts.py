"""The calls of the driver: each does one thing to the cache, and judges what only it can see."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from kvtier import Busy, CopyFailed, Demand, Granted, OutOfSlots, PageLost
from kvtier_spec import Phase, SequenceState
from model_tests.universe import PROMPTS, Fail, User, key_of, needs, rows_of, token_of

if TYPE_CHECKING:
    from model_tests.driver import Driver


class Acts:
    """What can be called, by name."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.resizes = False
        self.lifts = False
        self.era = 0

    def _user(self, index: int) -> User:
        return self.driver.users[index]

    # ------------------------------------------------------------------------------- time

    def pump(self, lane: int) -> None:
        """Let one job of a lane happen."""
        self.driver.engine.pump(lane)

    def finish(self, job: int, failed: str) -> None:
        """Let a job of a fallible tier end: well, with its first page failing, or with all."""
        rows = {"none": (), "first": (0,), "all": range(64), "unread": ()}[failed]
        self.driver.engine.finish(job, failed=rows, unread=(0,) if failed == "unread" else ())

    def flaky(self, tier: int, rows: int) -> None:
        """Let the next rows of a fallible tier fail."""
        for memory in self.driver.memories[tier]:
            memory.fail_next(rows)  # type: ignore[attr-defined]

    def poll(self) -> None:
        """Poll."""
        self.driver.cache.poll()

    def wait(self, tickets: tuple[int, ...]) -> None:
        """Wait for the tickets of a busy demand; they have ended then."""
        self.driver.waits.remove(tickets)
        self.driver.cache.wait(tickets)
        store = self.driver.cache._store  # noqa: SLF001
        left = {aside.ticket for aside in store.copies.quarantined} | set(store.ledger.flights)
        left |= {flight.ticket for flight in store.flights.given_up.values()}
        assert not left & set(tickets), f"waited for {tickets}, still under way: {left}"

    def give_up(self, ticket: int) -> None:
        """Stop waiting for a flight."""
        self.driver.cache.give_up([ticket])

    # -------------------------------------------------------------------------- sequences

    def sequence(self, prompt: int) -> None:
        """Look a prompt up; the hit is the longest prefix that all groups can use (I10)."""
        driver, keys = self.driver, PROMPTS[prompt]
        expected = self._longest(keys)
        order = driver.orders()
        sequence = driver.cache.sequence(keys)
        assert sequence.matched == expected, f"I10: {sequence.matched} hits, not {expected}"
        driver.users.append(User(sequence))
        sequence.close()
        assert driver.orders() == order, "R5: looking a prompt up and closing it reordered pages"
        sequence = driver.cache.sequence(keys)
        driver.users[-1] = User(sequence, blocks=(sequence.committed, 0), era=self.era)

    def _longest(self, keys: Seq[str]) -> int:
        found = [
            {page.key for page in self.driver.world(g).pages if page.state.phase is Phase.COMMITTED}
            for g in self.driver.groups
        ]
        groups = self.driver.setup.groups
        return max(
            blocks
            for blocks in range(len(keys) + 1)
            if all(
                keys[at] in found[g]
                for g, group in enumerate(groups)
                for at in needs(group, blocks)
            )
        )

    def resume(self, index: int, new: int, fail: Fail) -> Any:
        """Resume, perhaps with a failing submission; write the new pages and read all others."""
        user = self._user(index)
        outcome = self._asked([user], lambda: user.sequence.resume(new, stream=user.stream), fail)
        if isinstance(outcome, Granted):
            self._activated(user, new)
        return outcome

    def append(self, index: int, new: int, fail: Fail) -> Any:
        """Append; granted exactly when the planner says that so many are available (I7)."""
        user = self._user(index)
        groups = self.driver.groups
        available = min(self.driver.cache.available("gpu", group) for group in groups)
        outcome = self._asked([user], lambda: user.sequence.append(new), fail)
        if isinstance(outcome, Granted | OutOfSlots):
            assert bool(outcome) == (new <= available), f"I7: {new} of {available}: {outcome}"
        if isinstance(outcome, Busy) and self.driver.setup.demote == "ahead":
            assert new > available, f"I7: {new} of {available}: {outcome}"
        if isinstance(outcome, Granted):
            self._activated(user, new)
        return outcome

    def step(self, indices: tuple[int, ...], new: int) -> Any:
        """Ask for several sequences at once."""
        users = [self._user(index) for index in indices]
        demands = [Demand(user.sequence, new) for user in users]
        outcome = self._asked(
            users, lambda: self.driver.cache.step(demands, stream=users[0].stream), None
        )
        if isinstance(outcome, Granted):
            for user in users:
                self._activated(user, new)
        return outcome

    def prefetch(self, index: int, tier: str, moving: int) -> None:
        """Bring pages up; of pages that others hold at most `moving` a group go down for it."""
        driver, user = self.driver, self._user(index)
        before = [self._held_places(user, group) for group in driver.groups]
        self.lifts = True
        try:
            tickets = self._asked([user], lambda: user.sequence.prefetch(tier, moving=moving), None)
        finally:
            self.lifts = False
        assert set(tickets or ()) <= set(driver.ledger.flights), f"{tickets} are not under way"
        for group, places in enumerate(before):
            now = self._held_places(user, group)
            moved = [page for page in places if places[page] < now[page]]
            assert len(moved) <= moving, f"prefetch moved {moved} down, {moving} were allowed"

    def _held_places(self, user: User, group: int) -> dict[int, int]:
        """Where the pages are that others hold: the warmest tier of each."""
        track = user.sequence.tracks[group]
        mine = {page.id for page in (*track.pages, *track.spare.values())}
        pages = self.driver.ledger.pages[group].values()
        return {page.id: page.primary for page in pages if page.holds and page.id not in mine}

    def commit(self, index: int, count: int) -> None:
        """Write the next open pages and commit them under the keys that follow."""
        user = self._user(index)
        sequence = user.sequence
        keys = [key_of(sequence, sequence.committed + i) for i in range(count)]
        if count <= sequence.open:
            tokens = [token_of(key) for key in keys]
            self._write(user, sequence.committed, tokens)
            del user.tokens[:count]
        before = [set(self.driver.ledger.found[group]) for group in self.driver.groups]
        sequence.commit(keys, stream=user.sequence.stream)
        if user.era < self.era:
            after = [set(self.driver.ledger.found[group]) for group in self.driver.groups]
            assert after == before, f"RESET: {keys} of {sequence}, from before a reset, are found"
        user.blocks = sequence.committed, sequence.open

    def trim(self, index: int, count: int) -> None:
        """Give back open pages."""
        user = self._user(index)
        user.sequence.trim(count)
        del user.tokens[len(user.tokens) - count :]
        user.blocks = user.sequence.committed, user.sequence.open

    def read(self, index: int) -> None:
        """Compare all pinned pages on the sequence's stream, as a kernel would read them."""
        user = self._user(index)
        if self.driver.has_bytes:
            for group in self.driver.groups:
                self._read(user, group)

    def write(self, index: int) -> None:
        """Write all open pages anew."""
        user = self._user(index)
        user.tokens = [self._next_token() for _ in user.tokens]
        self._write(user, user.sequence.committed, user.tokens)

    def suspend(self, index: int) -> None:
        """Suspend."""
        user = self._user(index)
        user.sequence.suspend()
        user.slots = None

    def close(self, index: int) -> None:
        """Close."""
        self.driver.users.pop(index).sequence.close()

    # ------------------------------------------------------------------------- the cache

    def reset(self) -> None:
        """Forget every key: nothing is found, and whoever is active keeps what it has."""
        driver = self.driver
        driver.cache.reset()
        self.era += 1
        for group in driver.groups:
            assert not driver.cache.snapshot(group).found, "RESET: a key is found after a reset"
            kept = driver.ledger.pages[group].values()
            assert all(page.pins or page.holds for page in kept), "RESET: a page nobody uses stays"
        assert [self._longest(keys) for keys in PROMPTS] == [0] * len(PROMPTS)

    def resize(self, tier: str, count: int) -> Any:
        """Shrink or grow a tier: granted, it has so many slots and no page stands beyond."""
        driver = self.driver
        self.resizes = True
        try:
            outcome = driver.cache.resize(tier, count)
        finally:
            self.resizes = False
        index = list(driver.counts).index(tier)
        if isinstance(outcome, Granted):
            driver.counts[tier] = count
        for pool, memory in zip(driver.ledger.pools[index], driver.memories[index], strict=True):
            assert pool.count == driver.counts[tier], f"{tier} has {pool.count} slots: {outcome}"
            if driver.has_bytes:
                assert memory.shape[0] == pool.count, f"{tier} has memory for {memory.shape[0]}"
        return outcome

    # ----------------------------------------------------------------------------- inside

    def _asked(self, users: Seq[User], act: Any, fail: Fail) -> Any:
        """Perform a demand that may fail: pins and holds are then as before (I8)."""
        counts = self.driver.user_counts()
        engine = self.driver.engine
        context = nullcontext() if fail is None else engine.failing(at=fail[0], queued=fail[1])
        try:
            with context:
                outcome = act()
        except CopyFailed:
            assert self.driver.user_counts() == counts, "I8: a failed copy changed pins or holds"
            return None
        except PageLost as error:
            self._told_of_a_loss(users, error)
            return None
        return outcome

    def _told_of_a_loss(self, users: Seq[User], error: PageLost) -> None:
        told = [user for user in users if user.sequence is error.sequence]
        assert [user.sequence.committed for user in told] == [error.blocks]
        for user in users:
            user.blocks = user.sequence.committed, user.sequence.open

    def _activated(self, user: User, new: int) -> None:
        """A user was granted pages: it has what it knows of, and writes the new ones."""
        sequence = user.sequence
        assert sequence.state is SequenceState.ACTIVE
        was = sequence.committed, sequence.open - new
        assert was == user.blocks, f"I5: {sequence} was told of {user.blocks}, it has {was}"
        del user.tokens[was[1] :]
        fresh = [self._next_token() for _ in range(new)]
        self._write(user, sequence.committed + was[1], fresh)
        user.tokens += fresh
        user.blocks = sequence.committed, sequence.open

    def _next_token(self) -> int:
        self.driver.token += 1
        return self.driver.token

    def _write(self, user: User, first: int, tokens: Seq[int]) -> None:
        """Write open pages of every group, from a block on, on the sequence's stream."""
        driver, sequence = self.driver, user.sequence
        for group in driver.groups if driver.has_bytes and tokens else ():
            at = first - sequence.first(group)
            slots = sequence.slots(group)[at : at + len(tokens)]
            data = rows_of(tokens, group, driver.setup.groups[group].page_bytes)
            memory = driver.memories[0][group]

            def work(memory: Any = memory, slots: Any = slots, data: Any = data) -> None:
                memory.write(slots, data)

            driver.engine.launch(sequence.stream, work, writes=slots, group=group)

    def _read(self, user: User, group: int) -> None:
        """Compare all pinned pages of a group on the sequence's stream."""
        driver, sequence = self.driver, user.sequence
        slots, first = sequence.slots(group), sequence.first(group)
        keys = [token_of(key_of(sequence, i)) for i in range(first, sequence.committed)]
        page_bytes = driver.setup.groups[group].page_bytes
        expected = rows_of([*keys, *user.tokens], group, page_bytes)
        memory = driver.memories[0][group]

        def compare() -> None:
            found = memory.read(slots)
            assert np.array_equal(found, expected), f"wrong bytes in slots {slots} of {sequence}"

        if len(slots):
            driver.engine.launch(sequence.stream, compare, reads=slots, group=group)
