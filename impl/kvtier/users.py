"""Who uses which page: sequences from look-up to close, over all groups of a block.

What a sequence does to its pages is said here once: hold at look-up, pin when active, commit,
retire what has left a window, hold again, give up. What needs slots is `demands.py`'s business.
Nothing here can be refused: whoever calls has asked before.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from collections.abc import Sequence as Seq
from itertools import chain as flat
from typing import TYPE_CHECKING

from kvtier.config import Config
from kvtier.flights import News
from kvtier.pages import GPU, Page
from kvtier.prefix import Found, longest
from kvtier.sequence import Sequence, Track
from kvtier.slots import Fence
from kvtier.store import Store
from kvtier_spec import Phase, SequenceState

if TYPE_CHECKING:
    from kvtier.operations import Operations


class Users:
    """The sequences of a cache that are not closed, by number."""

    def __init__(self, config: Config, store: Store) -> None:
        self.sequences: dict[int, Sequence] = {}
        self.era = 0
        """How many resets there were."""
        self._config = config
        self._store = store
        self._next = 0

    # -------------------------------------------------------------------------------- look-up

    def look_up(self, operations: Operations, prompt: list[Hashable]) -> Sequence:
        """Find the longest usable prefix of a prompt, and hold it."""
        groups = self._config.groups
        sequence = Sequence(operations, self._next, prompt, len(groups), self.era)
        self._next += 1
        self._store.policy.name_keys(prompt)
        found: list[Found] = [
            [index.get(key) for key in prompt] for index in self._store.ledger.found
        ]
        blocks = longest(groups, found)
        for group, track, pages in zip(groups, sequence.tracks, found, strict=True):
            self._store.hold(track.take(group, pages, blocks))
        sequence.keys = prompt[:blocks]
        sequence.hits = self._hits(sequence)
        self.sequences[sequence.id] = sequence
        return sequence

    def _hits(self, sequence: Sequence) -> dict[str, int]:
        """Count the blocks of a prefix by the coldest tier that they come from."""
        tiers = [GPU] * sequence.committed
        for track in sequence.tracks:
            for at, page in enumerate(track.pages, track.first):
                tiers[at] = max(tiers[at], page.primary)
        names = [tier.name for tier in self._config.chain.tiers]
        return {name: tiers.count(tier) for tier, name in enumerate(names)}

    # ------------------------------------------------------------------------------- activity

    def wait_for(self, sequence: Sequence, new: int, opened: list[list[Page]]) -> None:
        """Enter `resuming`: all slots are taken, some pages are on their way."""
        self._append(sequence, new, opened)
        pages = flat.from_iterable(track.pages for track in sequence.tracks)
        sequence.coming = [page for page in pages if page.flies_to(GPU)]
        sequence.state, sequence.wish = SequenceState.RESUMING, new

    def activate(
        self, sequence: Sequence, new: int, opened: list[list[Page]], stream: Hashable | None
    ) -> None:
        """Let a sequence be used on a stream, with `new` more of the opened pages."""
        if sequence.state is SequenceState.ACTIVE and sequence.stream != stream:
            self._change_stream(sequence, stream)
        if sequence.state is SequenceState.RESUMING:
            self._order(sequence, stream)
            sequence.coming, sequence.wish = [], 0
        else:
            self._append(sequence, new, opened)
        if sequence.state is not SequenceState.ACTIVE:
            for track in sequence.tracks:
                self._store.write_through(track.pages)
        sequence.state = SequenceState.ACTIVE
        sequence.stream = stream

    def _append(self, sequence: Sequence, new: int, opened: list[list[Page]]) -> None:
        for track, fresh in zip(sequence.tracks, opened, strict=True):
            track.pages += fresh[:new]
            del fresh[:new]

    def _change_stream(self, sequence: Sequence, stream: Hashable | None) -> None:
        """Hand the use on an active sequence's old stream on, and order the new one after it.

        The slots know all that the new stream must wait for, recalls that the old one never used
        among it.
        """
        for track in sequence.tracks:
            self._note_use(track.pages, sequence.stream)
        self._order(sequence, stream)

    def _order(self, sequence: Sequence, stream: Hashable | None) -> None:
        for track in sequence.tracks:
            self._store.copies.order_user(track.pages, self._store.engine.lane(stream))

    def _note_use(self, pages: Seq[Page], stream: Hashable | None) -> None:
        if stream is not None:
            engine = self._store.engine
            self._store.copies.note_use(pages, engine.record(engine.lane(stream)))

    def commit(
        self, sequence: Sequence, keys: list[Hashable], fence: Fence, stream: Hashable | None
    ) -> None:
        """Commit the next open pages of a sequence in every group."""
        first, store = sequence.committed, self._store
        is_late = sequence.era != self.era
        if not is_late:
            store.policy.name_keys(keys[max(0, len(sequence.prompt) - first) :])
        for track in sequence.tracks:
            at = first - track.first
            pages = track.pages[at : at + len(keys)]
            if is_late:
                store.commit_late(pages, keys, fence)
            else:
                pages = store.commit(pages, keys, fence)
            taken, freed = track.settle(first, pages)
            store.hold(taken)
            store.unhold(freed)
            store.write_through(page.mate or page for page in pages)
        sequence.keys += keys
        self._retire(sequence, stream)

    def _retire(self, sequence: Sequence, stream: Hashable | None) -> None:
        """Give up what has left its group's window: findable still, used no more."""
        for group, track in zip(self._config.groups, sequence.tracks, strict=True):
            first = group.first_needed(sequence.committed)
            if first > track.first:
                gone, mates = track.cut(first)
                for user in {stream, sequence.stream}:
                    self._note_use(gone, user)
                twins = [page for page in gone if page.phase is Phase.TWIN]
                stay = [page for page in gone if page.phase is not Phase.TWIN]
                self._store.rest(stay, hold=False, gone=twins, freed=mates)
                sequence.epoch += 1

    def trim(self, sequence: Sequence, count: int) -> None:
        """Drop the last open pages of a sequence."""
        sequence.epoch += 1
        for track in sequence.tracks:
            left = len(track.pages) - count
            gone = track.pages[left:]
            self._note_use(gone, sequence.stream)
            del track.pages[left:]
            self._store.drop(gone)

    # ------------------------------------------------------------------------------- an end

    def suspend(self, sequence: Sequence, stream: Hashable | None) -> None:
        """Unpin the pages of a sequence and hold them."""
        sequence.epoch += 1
        if sequence.state is SequenceState.RESUMING:
            self._abort(sequence)
            return
        is_short = False
        for track in sequence.tracks:
            self._note_use(track.pages, stream)
            twins = [page for page in track.pages if page.phase is Phase.TWIN]
            kept = [page for page in track.pages if page.phase is not Phase.TWIN]
            for position, mate in track.mates.items():
                track.pages[position - track.first] = mate
            used = track.pages[::-1] if twins else ()
            is_short |= len(track.mates) < len(twins)
            self._store.rest(kept[::-1], hold=True, gone=twins, used=used)
            track.mates.clear()
        sequence.state = SequenceState.SUSPENDED
        if is_short:  # a page whose twin was used has been lost meanwhile
            self._shorten(sequence)

    def _abort(self, sequence: Sequence) -> None:
        """Give a resume up: what it opened goes, what it pinned is held, what flies may land."""
        coming = set(sequence.coming)
        for track in sequence.tracks:
            left = len(track.pages) - sequence.wish
            self._store.drop(track.pages[left:])
            del track.pages[left:]
            pinned = [p for p in track.pages if p not in coming or p.slots[GPU] is not None]
            self._store.rest(pinned[::-1], hold=True)
        for page in sequence.coming:
            if page.awaited and page.flies_to(GPU):
                page.awaited -= 1
        sequence.coming, sequence.wish = [], 0
        sequence.state = SequenceState.SUSPENDED

    def end(self, sequence: Sequence, stream: Hashable | None) -> None:
        """Close a sequence: private pages are dropped, all others given up, prompt tail coldest."""
        sequence.epoch += 1
        if sequence.state is SequenceState.RESUMING:
            self._abort(sequence)
        for group, track in enumerate(sequence.tracks):
            self._give_up(sequence, group, track, stream)
            track.pages, track.spare, track.mates, track.first = [], {}, {}, 0
        self.bury(sequence)
        del self.sequences[sequence.id]

    @staticmethod
    def bury(sequence: Sequence) -> None:
        """Close a sequence whose pages are gone."""
        sequence.keys = []
        sequence.state = SequenceState.CLOSED

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
        used = [track.mates.get(at, page) for at, page in enumerate(track.pages, track.first)]
        self._store.rest(
            shared, hold=False, gone=private, freed=freed, used=used[::-1] if track.mates else ()
        )

    # --------------------------------------------------------------------------------- losses

    def note(self, news: News) -> None:
        """Tell sequences what a poll has found: flights that failed, pages that are lost."""
        failed, lost = set(news.failed), set(news.lost)
        for sequence in list(self.sequences.values()):
            if not failed.isdisjoint(sequence.coming):
                sequence.epoch += 1
                self._abort(sequence)
            for track in sequence.tracks if lost else ():
                track.spare = _without(track.spare, lost)
                track.mates = _without(track.mates, lost)
            if any(not lost.isdisjoint(track.pages) for track in sequence.tracks):
                self._shorten(sequence)

    def _shorten(self, sequence: Sequence) -> None:
        """Go on with the longest prefix that is left.

        Open pages stay if all before them does; else they go, for their prefix is gone. What is
        found again (somebody has computed it meanwhile) is no loss.
        """
        groups, store = self._config.groups, self._store
        left = [list(self._left(sequence, group)) for group in range(len(groups))]
        blocks = longest(groups, left)
        is_whole = blocks == sequence.committed and not any(
            page.is_gone
            for track in sequence.tracks
            for page in track.pages[blocks - track.first :]
        )
        for group, track, pages in zip(groups, sequence.tracks, left, strict=True):
            had = [page for page in track.pages if not page.is_gone]
            private = [page for page in had if page.phase is Phase.OPEN]
            freed = [page for page in had if page.phase is not Phase.OPEN]
            freed += track.spare.values()
            store.hold(track.take(group, pages[:blocks], blocks))
            store.unhold(freed)
            if is_whole:
                track.pages += private
            else:
                store.drop(private)
        sequence.keys = sequence.keys[:blocks]
        sequence.epoch += 1
        sequence.has_lost |= not is_whole

    def _left(self, sequence: Sequence, group: int) -> Iterator[Page | None]:
        """Give what is left of a sequence's blocks: its own pages, or what is found again."""
        track, index = sequence.tracks[group], self._store.ledger.found[group]
        for at, key in enumerate(sequence.keys):
            mine = track.pages[at - track.first] if at >= track.first else None
            if mine is not None and not mine.is_gone:
                yield mine
            else:
                yield index.get(key) if sequence.era == self.era else None


def _without(held: dict[int, Page], lost: Collection[Page]) -> dict[int, Page]:
    return {at: page for at, page in held.items() if page not in lost}
