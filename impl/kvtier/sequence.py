"""A sequence: the pages that one request, or one conversation, uses.

Suspended, it holds its pages: they may move down and are never dropped. Active, it has them pinned
on the gpu, at slots that do not change. Between them it may be resuming: it has all its slots, and
waits for pages that come from a fallible tier. The states are those of `kvtier_spec.sequence`.

Positions are blocks. The first `committed` ones have keys; behind them are open pages, private to
the sequence, whose bytes may still change. A block has a page in every group, as long as the group
needs it.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kvtier import doors
from kvtier.config import Group
from kvtier.errors import BadRequest, StaleHandle, WrongState
from kvtier.outcomes import Holder, Outcome
from kvtier.pages import GPU, Page
from kvtier.prefix import Found
from kvtier_spec import Phase, SequenceState

if TYPE_CHECKING:
    from kvtier.operations import Operations


@dataclass(slots=True)
class Track:
    """A sequence's pages of one group: `pages[0]` is that of block `first`, and so on.

    A group that needs a window only has no pages before it. `spare` are held pages of the prompt
    behind the first miss; `mates` are the held pages whose twins this sequence has pinned in their
    stead; both by block.
    """

    first: int = 0
    pages: list[Page] = field(default_factory=list)
    spare: dict[int, Page] = field(default_factory=dict)
    mates: dict[int, Page] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The block behind the last page."""
        return self.first + len(self.pages)

    def take(self, group: Group, found: Found, blocks: int) -> list[Page]:
        """Take the pages of a prefix, and spares behind it; give all that must be held for it."""
        self.first = group.first_needed(blocks)
        self.pages = [page for page in found[self.first : blocks] if page is not None]
        self.spare = {
            at: page for at, page in enumerate(found) if page is not None and at >= blocks
        }
        return [*self.pages, *self.spare.values()]

    def settle(self, first: int, kept: Seq[Page]) -> tuple[list[Page], list[Page]]:
        """Take note of committed pages; give the mates to hold, and the spares to give up."""
        taken, freed = [], []
        for position, page in enumerate(kept, first):
            self.pages[position - self.first] = page
            spare = self.spare.pop(position, None)
            if page.phase is Phase.TWIN and page.mate is not None:
                self.mates[position] = page.mate
                taken.append(page.mate)
            if spare is not None:
                freed.append(spare)
        return taken, freed

    def cut(self, first: int) -> tuple[list[Page], list[Page]]:
        """Let the pages before a block go; give them, and the mates that go with them."""
        gone, self.pages = self.pages[: first - self.first], self.pages[first - self.first :]
        mates = [self.mates.pop(at) for at in range(self.first, first) if at in self.mates]
        self.first = first
        return gone, mates


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

    `hits` says how many blocks of the prompt were found, by tier, when the sequence was made: a
    block counts for the coldest tier that one of its pages comes from. `matched` is their sum.
    """

    def __init__(
        self, operations: Operations, number: int, prompt: list[Hashable], groups: int, era: int
    ) -> None:
        self._operations = operations
        self.id = number
        self.state = SequenceState.SUSPENDED
        self.prompt = prompt
        self.keys: list[Hashable] = []
        """Keys of the committed blocks."""
        self.epoch = 0
        self.era = era
        """How many resets the cache had seen when this was made."""
        self.hits: dict[str, int] = {}
        self.stream: Hashable | None = None
        self.tracks = [Track() for _ in range(groups)]
        self.wish = 0
        """How many pages the resume that is under way has opened."""
        self.coming: list[Page] = []
        """Pages that the resume under way waits for."""
        self.has_lost = False
        """Whether pages were lost since it was last told."""

    def __repr__(self) -> str:
        return f"<sequence {self.id} {self.state}: {self.committed} committed, {self.open} open>"

    @property
    def committed(self) -> int:
        """Count the blocks that have keys."""
        return len(self.keys)

    @property
    def open(self) -> int:
        """Count the open pages (of each group)."""
        return self.tracks[0].end - self.committed

    @property
    def matched(self) -> int:
        """Count the blocks of the prompt that were found when the sequence was made."""
        return sum(self.hits.values())

    def resume(self, new: int = 0, *, stream: Hashable | None = None) -> Outcome:
        """Recall and pin all pages and open `new` ones (of each group): all or nothing.

        Work on `stream` is ordered after the copies; None is the host itself, which waits.
        `OutOfSlots` changed nothing. On `Busy` do other work, or `Cache.wait` for its tickets, and
        ask again with the same `new`: pages that come from a fallible tier are on their way, and
        the sequence has all its slots (`resuming`; `suspend` or `close` give up), or room is being
        made. Raises CopyFailed if copies could not be submitted, and PageLost, once, after a page
        could not be read: the sequence is then suspended, in the second case with a shorter prefix.
        Cost: O(pages moved + pages of the sequence).
        """
        if self.state is SequenceState.ACTIVE:
            raise WrongState(f"{self} is active already; suspend it first, or append pages")
        return self._operations.demand([(self, new)], stream)

    def append(self, new: int = 1) -> Outcome:
        """Open `new` more pages while active: all or nothing, as for `resume`."""
        self.require_active("append to")
        return self._operations.demand([(self, new)], self.stream)

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
                raise BadRequest(
                    f"{self}: block {position} was looked up under another key: {wanted!r}, "
                    f"and is to be committed under {key!r}"
                )
        self._operations.commit(self, names, self.stream if stream is None else stream)

    def trim(self, count: int) -> None:
        """Give back the last `count` open pages."""
        self.require_active("trim")
        pages = doors.count(count, "the number of pages to trim")
        if pages > self.open:
            raise BadRequest(f"trim({pages}) of {self}: only open pages can be trimmed")
        self._operations.trim(self, pages)

    def suspend(self, *, stream: Hashable | None = None) -> None:
        """Unpin all pages, prompt tail coldest, and hold them; `stream` used them last.

        A resume that is under way is given up: pages that it opened are dropped, those on their way
        arrive as pages that are held.
        """
        if self.state is not SequenceState.RESUMING:
            self.require_active("suspend")
        self._operations.suspend(self, self.stream if stream is None else stream)

    def close(self, *, stream: Hashable | None = None) -> None:
        """Give everything up; committed pages stay findable. Idempotent."""
        if self.state is not SequenceState.CLOSED:
            self._operations.end(self, self.stream if stream is None else stream)

    def prefetch(self, tier: str, *, moving: int = 0) -> tuple[int, ...]:
        """Bring pages of a suspended sequence up to a tier, as far as there is room; a hint.

        Gives the tickets of what is on its way. Pages stay held, not pinned: they may be moved down
        again. Of pages that others hold, at most `moving` (of each group) are moved down for it.
        """
        self._operations.check_alive()
        if self.state is not SequenceState.SUSPENDED:
            raise WrongState(f"prefetch is for suspended sequences, not {self}")
        budget = doors.count(moving, "the number of pages to move")
        return self._operations.prefetch(self, tier, budget)

    def first(self, group: int = 0) -> int:
        """Say which block the first page of a group is of: behind what has left its window."""
        return self._track(group).first

    def _track(self, group: int) -> Track:
        if group not in range(len(self.tracks)):
            raise BadRequest(f"no group {group!r}; there are {len(self.tracks)}, from 0")
        return self.tracks[group]

    def slots(self, group: int = 0) -> NDArray[np.int64]:
        """Give the gpu slots of a group's pages in order, as int64, ready for a block table."""
        self.require_active("take slots of")
        return np.array([page.slots[GPU] for page in self._track(group).pages], np.int64)

    def table(self, group: int = 0) -> SlotTable:
        """Give the gpu slots as a handle that notices when it has become stale."""
        slots = self.slots(group)
        return SlotTable(slots, self.generations(slots, group), self.epoch, self, group)

    def generations(self, slots: NDArray[np.int64], group: int = 0) -> NDArray[np.int64]:
        """Say how often each of these slots was taken."""
        return self._operations.generations(group)[slots]

    def holder(self, group: int) -> Holder:
        """Say what this sequence keeps of a group."""
        track = self.tracks[group]
        others = len(track.spare) + len(track.mates)
        if self.state in (SequenceState.ACTIVE, SequenceState.RESUMING):
            return Holder(self.id, pinned=len(track.pages), held=others)
        return Holder(self.id, pinned=0, held=len(track.pages) + others)

    def is_of(self, operations: Operations) -> bool:
        """Say whether a cache with these operations made this sequence."""
        return self._operations is operations

    def require_active(self, what: str) -> None:
        """Raise WrongState unless active (or what the cache has to say, if it has stopped)."""
        self._operations.check_alive()
        if self.state is SequenceState.CLOSED:
            raise WrongState(f"cannot {what} {self}; make a new one with Cache.sequence()")
        if self.state is SequenceState.SUSPENDED and what == "suspend":
            raise WrongState(f"{self} is suspended already; resume() it first, or close() it")
        if self.state is not SequenceState.ACTIVE:
            raise WrongState(f"cannot {what} {self}; resume() it first, until it is granted")

    def private(self, group: int) -> list[Page]:
        """List the pages that leave with this sequence: open ones and twins."""
        return [page for page in self.tracks[group].pages if page.phase in _PRIVATE]

    def shared(self, group: int) -> list[Page]:
        """List the pages that others may use too, in order."""
        return [page for page in self.tracks[group].pages if page.phase not in _PRIVATE]


_PRIVATE = (Phase.OPEN, Phase.TWIN)
