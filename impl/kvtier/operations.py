"""Operations: how each begins and ends, and those that sequences ask for.

Every operation begins with the upkeep (what has ended is known), asks what may be refused before
anything changes, and commits inside a guard: an error there stops the cache instead of leaving it
in a broken state. Observers are told when it is over. `Cache` and `Sequence` are the public faces
of this; nothing here checks what they have checked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvtier import doors
from kvtier.demands import Demands, Wish
from kvtier.errors import BadRequest, CacheClosed
from kvtier.failstop import FailStop
from kvtier.journal import Journal
from kvtier.outcomes import Outcome
from kvtier.pages import GPU
from kvtier.sequence import Sequence
from kvtier.transfer import Engine
from kvtier.upkeep import Upkeep
from kvtier.users import Users
from kvtier_spec import ChainError, SequenceState

GRACE_S = 1.0
"""Seconds that closing waits for copies that were given up: they may be slow and not hang."""


@dataclass(slots=True)
class Operations:
    """The operations of one cache."""

    engine: Engine
    journal: Journal
    demands: Demands
    upkeep: Upkeep
    stop: FailStop
    is_closed: bool = False

    @property
    def users(self) -> Users:
        """The sequences."""
        return self.demands.users

    def check_alive(self) -> None:
        """Raise if the cache has stopped or was closed."""
        self.stop.check()
        if self.is_closed:
            raise CacheClosed("this cache was closed; open a new one")

    def enter(self) -> None:
        """Begin an operation: the cache is alive, and what has ended is known.

        Observers are told of it when the operation is over: they may call the cache, and must not
        change what the caller of this one has just looked at.
        """
        self.check_alive()
        with self.stop.guard():
            self.upkeep.run()

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Change state, then tell the observers."""
        try:
            with self.stop.guard():
                yield
        finally:
            if self.stop.failure is None:
                self.journal.deliver()

    def tier(self, name: str) -> int:
        """Say where in the chain a tier stands."""
        try:
            return self.demands.config.chain.index(name)
        except ChainError as error:
            raise BadRequest(str(error)) from error

    def generations(self, group: int) -> NDArray[np.int64]:
        """Give the generation of each gpu slot; a view, it changes as slots are taken."""
        return self.demands.store.ledger.pools[GPU][group].generation

    def look_up(self, prompt: list[Hashable]) -> Sequence:
        """Find a prompt and hold what was found."""
        with self.committing():
            return self.users.look_up(self, prompt)

    def demand(self, asked: Seq[Wish], stream: Hashable | None) -> Outcome:
        """Meet demands; `Sequence.resume`, `Sequence.append` and `Cache.step` all come here."""
        self.enter()
        lane = doors.lane(self.engine, stream)
        wishes = [
            (self._mine(sequence), doors.count(new, "the number of new pages"))
            for sequence, new in asked
        ]
        if len({sequence.id for sequence, _ in wishes}) < len(wishes):
            raise BadRequest("a sequence is asked for twice in one step; add its demands up")
        for wish in wishes:
            self.demands.check(wish)
        with self.committing():
            return self.demands.meet(wishes, stream, lane)

    def _mine(self, sequence: Sequence) -> Sequence:
        if not (isinstance(sequence, Sequence) and sequence.is_of(self)):
            raise BadRequest(f"{sequence} is not of this cache")
        return sequence

    def prefetch(self, sequence: Sequence, tier: str, moving: int) -> tuple[int, ...]:
        """Bring a suspended sequence's pages up."""
        self.enter()
        index = self.tier(tier)
        self.demands.tell_losses(sequence)
        with self.committing():
            return self.demands.prefetch(sequence, index, moving)

    def commit(self, sequence: Sequence, keys: list[Hashable], stream: Hashable | None) -> None:
        """Commit the next open pages of a sequence."""
        self.enter()
        fence = self.engine.record(doors.lane(self.engine, stream))
        with self.committing():
            self.users.commit(sequence, keys, fence, stream)

    def trim(self, sequence: Sequence, count: int) -> None:
        """Drop the last open pages of a sequence."""
        self.enter()
        with self.committing():
            self.users.trim(sequence, count)

    def suspend(self, sequence: Sequence, stream: Hashable | None) -> None:
        """Unpin and hold the pages of a sequence; a resume that has just failed is over already."""
        self.enter()
        doors.lane(self.engine, stream)
        if sequence.state is SequenceState.SUSPENDED:
            return
        with self.committing():
            self.users.suspend(sequence, stream)

    def end(self, sequence: Sequence, stream: Hashable | None) -> None:
        """Close a sequence; one of a cache that has stopped or was closed lost its pages then."""
        if self.stop.failure is not None or self.is_closed:
            sequence.epoch += 1
            self.users.bury(sequence)
            return
        self.enter()
        doors.lane(self.engine, stream)
        with self.committing():
            self.users.end(sequence, stream)

    def finish(self) -> None:
        """Close all sequences and let all copies end; a cache that has stopped does neither."""
        if self.stop.failure is not None:
            return
        self.upkeep.is_ending = True
        for sequence in list(self.users.sequences.values()):
            sequence.close()
        self.engine.synchronize()
        flights = self.demands.store.flights
        flights.wait({flight.ticket for flight in flights.given_up.values()}, GRACE_S)
        self.enter()
