"""Faults, planted into the runtime by hand: what a tired engineer would write.

Each replaces one function of the runtime and nothing of the tests. A fault that no longer applies
fails loudly: `setattr` is only done where the name exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kvtier import (
    demands,
    flights,
    ledger,
    pages,
    planner,
    queues,
    resizing,
    sequence,
    store,
    submissions,
    users,
)
from kvtier.order import Order
from kvtier.pages import HOST
from kvtier.slots import SlotPool
from kvtier_spec import Kind, Phase, Record, SequenceState

Fault = Callable[[], tuple[Any, str, Any]]


def reuses_a_slot_while_it_is_read() -> tuple[Any, str, Any]:
    """A slot's next writer waits for its last write, but not for the copies that read it."""
    return SlotPool, "fences_to_write", SlotPool.fences_to_read


def reads_a_slot_before_it_is_written() -> tuple[Any, str, Any]:
    """Whoever reads a slot does not wait for the copy that fills it."""
    return SlotPool, "fences_to_read", lambda _self, _slots: {}


def forgets_the_last_use_by_a_stream() -> tuple[Any, str, Any]:
    """Suspending hands no fence on: the slots are copied and reused while a kernel runs."""
    return submissions.Submissions, "note_use", lambda _self, _pages, _fence: None


def gives_failed_targets_back_at_once() -> tuple[Any, str, Any]:
    """A half submitted batch: its target slots are free at once, while copies still run."""

    def set_aside(
        self: submissions.Submissions, tier: int, group: int, slots: Any, _lane: int
    ) -> None:
        self.pools[tier][group].give(slots)

    return submissions.Submissions, "set_aside", set_aside


def drops_held_pages() -> tuple[Any, str, Any]:
    """The coldest of a batch are dropped although a suspended sequence holds them."""
    return planner, "_may_drop", lambda page: page.flight is None


def evicts_its_own_pages() -> tuple[Any, str, Any]:
    """A demand's own pages, not pinned yet, are victims of the room that it makes."""

    def may_go(view: Any, group: int, _own: Any, _budget: int) -> Iterator[Any]:
        return iter(view.evictable[planner.GPU][group])

    return planner, "may_go", may_go


def evicts_real_pages_before_shadows() -> tuple[Any, str, Any]:
    """`shadow_first` gives real pages up while shadows stand."""
    from kvtier.policy import PageFirst, ShadowFirst

    return ShadowFirst, "give_up", PageFirst.give_up


def reads_hits_behind_a_gap() -> tuple[Any, str, Any]:
    """The match does not stop at the first miss."""

    def longest(_groups: Any, found: Any) -> int:
        return max((at + 1 for at, page in enumerate(found[0]) if page is not None), default=0)

    return users, "longest", longest


def leaks_open_pages_at_close() -> tuple[Any, str, Any]:
    """Closing gives the shared pages up and forgets the open ones."""
    return sequence.Sequence, "private", lambda _self, _group: []


def reorders_at_look_up() -> tuple[Any, str, Any]:
    """A page that was held comes back to the hot end instead of its place."""

    def unpark(self: Order, page: Any) -> None:
        del self._parked[page]
        self.push(page)

    return Order, "unpark", unpark


def leaves_a_stale_copy_of_an_open_page() -> tuple[Any, str, Any]:
    """A recalled open page keeps its host replica, which the next write makes stale."""

    def give(self: ledger.Ledger, given: Any, tier: int) -> None:
        kept = [p for p in given if tier != HOST or p.phase is not Phase.OPEN]
        _GIVE(self, kept, tier)

    return ledger.Ledger, "give", give


def takes_the_hold_before_the_copy_stands() -> tuple[Any, str, Any]:
    """A failed recall has already given the sequence's holds up."""

    def recall(self: store.Store, plans: Any) -> Any:
        for plan in plans:
            for page in plan.recall:
                page.holds -= 1
        moved = _RECALL(self, plans)
        for plan in plans:
            for page in plan.recall:
                page.holds += 1
        return moved

    return store.Store, "_recall", recall


def indexes_two_pages_under_one_key() -> tuple[Any, str, Any]:
    """A commit does not look whether the key is there already."""

    def commit(self: store.Store, pages: Any, keys: Any, fence: Any) -> Any:
        for page, key in zip(pages, keys, strict=True):
            page.key, page.phase = key, Phase.COMMITTED
            self.ledger.found[page.group][key] = page
        ids = [page.id for page in pages]
        self.ledger.journal.emit([Record(Kind.COMMIT, ids, keys=list(keys), fence=fence)])
        return pages

    return store.Store, "commit", commit


def forgets_the_old_stream() -> tuple[Any, str, Any]:
    """An active sequence goes on on another stream, which waits for nothing."""
    return users.Users, "_change_stream", lambda _self, _sequence, _stream: None


# ------------------------------------------------------------------------------------- disk


def frees_the_slots_of_a_flight_at_once() -> tuple[Any, str, Any]:
    """A page that is dropped in flight is dropped: both slots are free while the job runs."""

    def vanish(self: ledger.Ledger, gone: Any) -> Any:
        for page in gone:
            if page.flight is not None:
                self.pools[page.flight.target][page.group].give([page.filling])
                page.flight.pages.remove(page)
                page.flight = None
        return _VANISH(self, gone)

    return ledger.Ledger, "vanish", vanish


def takes_a_failed_copy_for_good() -> tuple[Any, str, Any]:
    """A flight has ended, so its pages have landed."""

    def end(self: flights.Flights, flight: Any, ended: Any, news: Any) -> None:
        _END(self, flight, ended._replace(failed=frozenset()), news)

    return flights.Flights, "_end", end


def releases_what_a_flight_reads() -> tuple[Any, str, Any]:
    """The source of a flight may be given up while the copy runs."""
    return pages.Page, "flies_from", lambda _self, _tier: False


def does_not_pin_what_has_landed() -> tuple[Any, str, Any]:
    """Pages that a resume waits for land, and may be evicted again before it goes on."""
    return flights.Flights, "_meet", lambda _self, _pages: []


def tells_nobody_of_a_loss() -> tuple[Any, str, Any]:
    """A page could not be read, and its holders keep it."""
    return users.Users, "note", lambda _self, _news: None


def lets_held_pages_go_nowhere() -> tuple[Any, str, Any]:
    """A held page without a colder replica counts as room."""

    def place(self: queues.Queues, page: Any, tier: int) -> int:
        return queues.PARKED if page.flies_from(tier) else queues.EVICTABLE

    return queues.Queues, "_place_of_primary", place


def gives_the_targets_of_a_hung_copy_back() -> tuple[Any, str, Any]:
    """A flight is given up, and its target slots are free while the job may still write them."""

    def give_up(self: flights.Flights, flight: Any, news: Any) -> None:
        self.engine.abandon(flight.job)
        news.failed += flight.pages
        self.ledger.pools[flight.target][flight.group].give(flight.slots)
        for page in flight.pages:
            page.flight = page.filling = None
            page.awaited = 0
        self.ledger.queues.reconcile(flight.pages)
        record = Record(Kind.FAIL, [page.id for page in flight.pages])
        self.ledger.emit([record], flight.pages)

    return flights.Flights, "_give_up", give_up


def joins_a_page_that_flies_to_the_gpu() -> tuple[Any, str, Any]:
    """A commit gives its slot to a page that is about to land on the gpu."""
    return pages.Page, "flies_to", lambda _self, _tier: False


def goes_on_before_its_pages_have_landed() -> tuple[Any, str, Any]:
    """A resume that is asked again is granted while its pages are still on their way."""

    def waits(_self: demands.Demands, wishes: Any) -> Any:
        for asked, _ in wishes:
            if asked.state is SequenceState.RESUMING:
                asked.coming = []
        return ()

    return demands.Demands, "_waits", waits


# ----------------------------------------------------------------------- groups, reset, resize


def ignores_the_window_of_a_hit() -> tuple[Any, str, Any]:
    """A hit is where the first group has its pages, whatever the others need."""

    def longest(_groups: Any, found: Any) -> int:
        return next((at for at, page in enumerate(found[0]) if page is None), len(found[0]))

    return users, "longest", longest


def retires_a_page_of_the_window() -> tuple[Any, str, Any]:
    """One page more leaves the window than has left it."""

    def retire(self: users.Users, one: Any, stream: Any) -> None:
        for group, track in zip(self._config.groups, one.tracks, strict=True):
            first = group.first_needed(one.committed) + (group.window is not None)
            if track.first < first <= one.committed:
                gone, mates = track.cut(first)
                twins = [page for page in gone if page.phase is Phase.TWIN]
                stay = [page for page in gone if page.phase is not Phase.TWIN]
                self._store.rest(stay, hold=False, gone=twins, freed=mates)
                one.epoch += 1

    return users.Users, "_retire", retire


def forgets_the_keys_of_one_group_only() -> tuple[Any, str, Any]:
    """A reset leaves the keys of all groups but the first."""

    def forget_keys(self: store.Store) -> None:
        found = self.ledger.found
        self.ledger.found = found[:1]
        _FORGET(self)
        self.ledger.found = found

    return store.Store, "forget_keys", forget_keys


def finds_what_older_sequences_commit() -> tuple[Any, str, Any]:
    """A sequence from before a reset commits as any other."""

    def commit(self: users.Users, one: Any, *rest: Any) -> None:
        one.era = self.era
        _COMMIT(self, one, *rest)

    return users.Users, "commit", commit


def keeps_forgotten_pages_for_ever() -> tuple[Any, str, Any]:
    """A page that a reset has forgotten stays when its last user leaves."""
    return store, "_outlives_its_users", lambda _page: False


def shrinks_under_a_running_copy() -> tuple[Any, str, Any]:
    """A shrink looks at pages only, not at what flies into the slots that go."""
    return resizing.Resizing, "_under_way", lambda _self, _group, _limit: ()


def shrinks_one_group_only() -> tuple[Any, str, Any]:
    """The slots of the first group retire, those of the others stay."""

    def change(self: resizing.Resizing) -> None:
        counts = self.counts
        self.counts = counts[:1]
        _CHANGE(self)
        self.counts = counts

    return resizing.Resizing, "_change_books", change


_GIVE, _VANISH = ledger.Ledger.give, ledger.Ledger.vanish
_RECALL, _FORGET = store.Store._recall, store.Store.forget_keys  # noqa: SLF001
_END, _COMMIT = flights.Flights._end, users.Users.commit  # noqa: SLF001
_CHANGE = resizing.Resizing._change_books  # noqa: SLF001

FAULTS: tuple[Fault, ...] = (
    reuses_a_slot_while_it_is_read,
    reads_a_slot_before_it_is_written,
    forgets_the_last_use_by_a_stream,
    gives_failed_targets_back_at_once,
    drops_held_pages,
    evicts_its_own_pages,
    evicts_real_pages_before_shadows,
    reads_hits_behind_a_gap,
    leaks_open_pages_at_close,
    reorders_at_look_up,
    leaves_a_stale_copy_of_an_open_page,
    takes_the_hold_before_the_copy_stands,
    indexes_two_pages_under_one_key,
    forgets_the_old_stream,
)
ON_DISK: tuple[Fault, ...] = (
    frees_the_slots_of_a_flight_at_once,
    takes_a_failed_copy_for_good,
    releases_what_a_flight_reads,
    does_not_pin_what_has_landed,
    tells_nobody_of_a_loss,
    lets_held_pages_go_nowhere,
    gives_the_targets_of_a_hung_copy_back,
    joins_a_page_that_flies_to_the_gpu,
    goes_on_before_its_pages_have_landed,
    shrinks_under_a_running_copy,
)
OF_GROUPS: tuple[Fault, ...] = (
    ignores_the_window_of_a_hit,
    retires_a_page_of_the_window,
    forgets_the_keys_of_one_group_only,
    finds_what_older_sequences_commit,
    keeps_forgotten_pages_for_ever,
    shrinks_one_group_only,
)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Run with a fault in the runtime."""
    owner, name, replacement = fault()
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
