"""Faults, planted into the runtime by hand: what a tired engineer would write.

Each replaces one function of the runtime and nothing of the tests. A fault that no longer applies
fails loudly: `setattr` is only done where the name exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kvtier import cache, planner, sequence, store, submissions
from kvtier.order import Order
from kvtier.slots import SlotPool
from kvtier_spec import Kind, Phase, Record

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
    return planner, "_coldest_unheld", lambda victims, count: set(victims[: max(0, count)])


def evicts_its_own_pages() -> tuple[Any, str, Any]:
    """A demand's own pages, not pinned yet, are victims of the room that it makes."""

    def may_go(view: Any, group: int, _own: Any, _budget: int) -> Iterator[Any]:
        return iter(view.evictable[planner.GPU][group])

    return planner, "_may_go", may_go


def evicts_real_pages_before_shadows() -> tuple[Any, str, Any]:
    """`shadow_first` gives real pages up while shadows stand."""
    from kvtier.policy import PageFirst, ShadowFirst

    return ShadowFirst, "give_up", PageFirst.give_up


def reads_hits_behind_a_gap() -> tuple[Any, str, Any]:
    """The match does not stop at the first miss."""

    def find(self: sequence.Track, prompt: Any, index: Any) -> Any:
        self.pages = [index[key] for key in prompt if key in index]
        return self.pages

    return sequence.Track, "find", find


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

    def give(self: store.Store, pages: Any, tier: int) -> None:
        kept = [p for p in pages if tier != planner.HOST or p.phase is not Phase.OPEN]
        _GIVE(self, kept, tier)

    return store.Store, "_give", give


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
            self.found[page.group][key] = page
        ids = [page.id for page in pages]
        self.journal.emit([Record(Kind.COMMIT, ids, keys=list(keys), fence=fence)])
        return pages

    return store.Store, "commit", commit


def forgets_the_old_stream() -> tuple[Any, str, Any]:
    """An active sequence goes on on another stream, which waits for nothing."""
    return cache.Cache, "_change_stream", lambda _self, _sequence, _stream: None


_GIVE, _RECALL = store.Store._give, store.Store._recall  # noqa: SLF001

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
