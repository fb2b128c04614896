"""A sequence: the pages that one request, or one conversation, uses.

Suspended, it holds its pages: they may move down and are never dropped. Active, it has them pinned
on the gpu, at slots that do not change. The states are those of `kvtier_spec.sequence`.

Positions are blocks. The first `committed` ones have keys; behind them are open pages, private to
the sequence, whose bytes may still change.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kvtier import doors
from kvtier.errors import BadRequest, StaleHandle, WrongState
from kvtier.outcomes import Holder, Outcome
from kvtier.pages import Page
from kvtier.planner import GPU
from kvtier_spec import Phase, SequenceState

if TYPE_CHECKING:
    from kvtier.cache import Cache


@dataclass(slots=True)
class Track:
    """A sequence's pages of one group, by position.

    `spare` are held pages of the prompt behind the first miss; `mates` are the held pages whose
    twins this sequence has pinned in their stead.
    """

    pages: list[Page] = field(default_factory=list)
    spare: dict[int, Page] = field(default_factory=dict)
    mates: dict[int, Page] = field(default_factory=dict)

    def find(self, prompt: Seq[Hashable], index: Mapping[Hashable, Page]) -> list[Page]:
        """Take what an index has of a prompt; give all pages that must be held for it."""
        found = [index.get(key) for key in prompt]
        end = next((at for at, page in enumerate(found) if page is None), len(found))
        self.pages = [page for page in found[:end] if page is not None]
        self.spare = {at: page for at, page in enumerate(found) if page is not None and at > end}
        return [*self.pages, *self.spare.values()]

    def settle(self, first: int, kept: Seq[Page]) -> tuple[list[Page], list[Page]]:
        """Take note of committed pages; give the mates to hold, and the spares to give up."""
        taken, freed = [], []
        for position, page in enumerate(kept, first):
            spare = self.spare.pop(position, None)
            if page.phase is Phase.TWIN and page.mate is not None:
                self.mates[position] = page.mate
                if spare is None:
                    taken.append(page.mate)
            elif spare is not None:
                freed.append(spare)
        return taken, freed


@dataclass(frozen=True, slots=True)
class SlotTable:
    """Slots of a sequence's pages on the gpu, good for as long as the sequence keeps them.

    `slots` is an int64 array, one entry a page, in order: a row of a block table. `generations` are
    those of the slots, which go up at each take; `epoch` is the sequence's, which goes up whenever
    it gives slots back (trim, suspend, close): a slot may wait long for its next owner.
    """

    slots: NDArray[np.int64]
    generations: NDArray[np.int64]
    epoch: int
    sequence: Sequence
    group: int

    def check(self) -> NDArray[np.int64]:
        """Give the slots, or raise StaleHandle if one of them may belong to another by now."""
        now = self.sequence.generations(self.slots, self.group)
        if self.sequence.epoch != self.epoch or (now != self.generations).any():
            raise StaleHandle(
                f"{self.sequence} has given slots back since this table of {len(self.slots)} pages "
                "was made; take a new one, after resume() if it is suspended"
            )
        self.sequence.require_active("use a table of")
        return self.slots


class Sequence:
    """Pages of one request; made by `Cache.sequence`, used by one thread.

    `hits` says how many pages of the prompt were found, by tier, when the sequence was made.
    """

    def __init__(self, cache: Cache, number: int, prompt: list[Hashable], groups: int) -> None:
        self._cache = cache
        self.id = number
        self.state = SequenceState.SUSPENDED
        self.prompt = prompt
        self.committed = 0
        self.epoch = 0
        self.hits: dict[str, int] = {}
        self.stream: Hashable | None = None
        self.tracks = [Track() for _ in range(groups)]

    def __repr__(self) -> str:
        return f"<sequence {self.id} {self.state}: {self.committed} committed, {self.open} open>"

    @property
    def open(self) -> int:
        """Count the open pages (of each group)."""
        return len(self.tracks[0].pages) - self.committed

    @property
    def matched(self) -> int:
        """Count the pages of the prompt that were found without a gap."""
        return sum(self.hits.values())

    def resume(self, new: int = 0, *, stream: Hashable | None = None) -> Outcome:
        """Recall and pin all pages and open `new` ones, as one demand: all or nothing.

        Work on `stream` is ordered after the copies; None is the host itself, which waits. A
        refusal (`Busy`, `OutOfSlots`) changes nothing. Raises CopyFailed if copies could not be
        submitted; the sequence is then still suspended. Cost: O(pages moved + pages of the
        sequence).
        """
        if self.state is SequenceState.ACTIVE:
            raise WrongState(f"{self} is active already; suspend it first, or append pages")
        return self._cache.demand([(self, new)], stream)

    def append(self, new: int = 1) -> Outcome:
        """Open `new` more pages while active: all or nothing, as for `resume`."""
        self.require_active("append to")
        return self._cache.demand([(self, new)], self.stream)

    def commit(self, keys: Seq[Hashable], *, stream: Hashable | None = None) -> None:
        """Name the next open pages, in order; fewer than all is legal.

        Their bytes never change again, and they are findable at once by whoever is ordered after
        `stream` (by default the one of `resume`), on which they were written. A key that another
        page has already leaves one page under it; this sequence keeps reading its own bytes.
        """
        self.require_active("commit pages of")
        names = doors.keys(keys)
        if len(names) > self.open:
            raise BadRequest(f"{len(names)} keys for {self}: append pages first, or give fewer")
        expected = self.prompt[self.committed : self.committed + len(names)]
        for position, (key, wanted) in enumerate(
            zip(names, expected, strict=False), self.committed
        ):
            if key != wanted:
                raise BadRequest(f"{self}: position {position} was looked up under another key")
        self._cache.commit(self, names, self.stream if stream is None else stream)

    def trim(self, count: int) -> None:
        """Give back the last `count` open pages."""
        self.require_active("trim")
        pages = doors.count(count, "the number of pages to trim")
        if pages > self.open:
            raise BadRequest(f"trim({pages}) of {self}: only open pages can be trimmed")
        self._cache.trim(self, pages)

    def suspend(self, *, stream: Hashable | None = None) -> None:
        """Unpin all pages, prompt tail coldest, and hold them; `stream` used them last."""
        self.require_active("suspend")
        self._cache.suspend(self, self.stream if stream is None else stream)

    def close(self, *, stream: Hashable | None = None) -> None:
        """Give everything up; committed pages stay findable. Idempotent."""
        if self.state is not SequenceState.CLOSED:
            self._cache.end(self, self.stream if stream is None else stream)

    def slots(self, group: int = 0) -> NDArray[np.int64]:
        """Give the gpu slots of all pages in order, as int64, ready for a block table."""
        self.require_active("take slots of")
        return np.array([page.slots[GPU] for page in self.tracks[group].pages], np.int64)

    def table(self, group: int = 0) -> SlotTable:
        """Give the gpu slots as a handle that notices when it has become stale."""
        slots = self.slots(group)
        return SlotTable(slots, self.generations(slots, group), self.epoch, self, group)

    def generations(self, slots: NDArray[np.int64], group: int = 0) -> NDArray[np.int64]:
        """Say how often each of these slots was taken."""
        return self._cache.generations(group)[slots]

    def holder(self, group: int) -> Holder:
        """Say what this sequence keeps of a group."""
        track = self.tracks[group]
        others = len(track.spare) + len(track.mates)
        if self.state is SequenceState.ACTIVE:
            return Holder(self.id, pinned=len(track.pages), held=others)
        return Holder(self.id, pinned=0, held=len(track.pages) + others)

    def is_of(self, cache: Cache) -> bool:
        """Say whether a cache made this sequence."""
        return self._cache is cache

    def require_active(self, what: str) -> None:
        """Raise WrongState unless active (or what the cache has to say, if it has stopped)."""
        self._cache.check_alive()
        if self.state is SequenceState.CLOSED:
            raise WrongState(f"cannot {what} {self}; make a new one with Cache.sequence()")
        if self.state is not SequenceState.ACTIVE:
            raise WrongState(f"cannot {what} {self}; resume() it first, and see it granted")

    def private(self, group: int) -> list[Page]:
        """List the pages that leave with this sequence: open ones and twins."""
        return [page for page in self.tracks[group].pages if page.phase is not Phase.COMMITTED]

    def shared(self, group: int) -> list[Page]:
        """List the findable pages, in order."""
        return [page for page in self.tracks[group].pages if page.phase is Phase.COMMITTED]
