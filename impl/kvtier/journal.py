"""The journal: the only output of state changes, in batches, to whoever subscribed.

A batch is a list of records (`kvtier_spec.Record`) that was committed as a unit. Batches are queued
and delivered when the whole operation is over, in order: a subscriber sees the cache at rest, may
call it, and cannot break it. An exception of one is counted and reported as a warning, and the
others are still told. Metrics, KV events and plots are subscribers. The auditor is not one: it is
asked as the batch is written, and what it raises stops the cache.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from traceback import format_exception_only

from kvtier_spec import Batch, Record

Subscriber = Callable[[Batch], object]

TAIL_BATCHES = 32
"""How many batches are kept for the message of an error."""


class ObserverWarning(RuntimeWarning):
    """A subscriber raised; the cache is not affected."""


class Journal:
    """Deliver batches to subscribers, in order, after each operation."""

    def __init__(self) -> None:
        self.auditor: Subscriber | None = None
        self.failures = 0
        self._subscribers: list[Subscriber] = []
        self._tail: deque[Batch] = deque(maxlen=TAIL_BATCHES)
        self._queue: deque[tuple[Subscriber, Batch]] = deque()
        self._waits = False

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Add a subscriber; call what is returned to remove it."""
        self._subscribers.append(subscriber)

        def remove() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return remove

    def emit(self, records: list[Record]) -> None:
        """Write one batch; records without pages and slots are left out."""
        batch = [record for record in records if len(record.pages) or len(record.slots)]
        if not batch:
            return
        self._tail.append(batch)
        if self.auditor is not None:
            self.auditor(batch)
        self._queue.extend((subscriber, batch) for subscriber in self._subscribers)

    def deliver(self) -> None:
        """Tell the subscribers what was written; what they cause is told after it, not within."""
        if self._waits:
            return
        with self.holding():
            while self._queue:
                self._tell(*self._queue.popleft())

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Deliver nothing in here: subscribers are being told already, or must not be yet."""
        before, self._waits = self._waits, True
        try:
            yield
        finally:
            self._waits = before

    def _tell(self, subscriber: Subscriber, batch: Batch) -> None:
        try:
            subscriber(batch)
        except Exception as error:  # noqa: BLE001 - an observer may raise anything
            self.failures += 1
            said = "".join(format_exception_only(error)).strip()
            with suppress(ObserverWarning):  # also where warnings are errors
                warnings.warn(f"journal subscriber: {said}", ObserverWarning, stacklevel=2)

    def tail(self, count: int = 12) -> tuple[str, ...]:
        """Write the last records as text, for the message of an error."""
        lines = [line(record) for batch in self._tail for record in batch]
        return tuple(islice(lines, max(0, len(lines) - count), None))


def line(record: Record) -> str:
    """Write one record as a line: event, tiers, pages, slots."""
    parts = [str(record.kind)]
    parts += ["private"] if record.is_private else ["late"] if record.is_late else []
    if record.kind in ("copy", "start"):
        parts.append(f"{record.source}>{record.target}")
    elif record.kind in ("release", "lose", "retire", "quarantine", "readmit", "grow"):
        parts.append(f"@{record.target}")
    for name, values in (("pages", record.pages), ("slots", record.slots), ("twins", record.twins)):
        if len(values):
            parts.append(f"{name}={list(values)}")
    return " ".join(parts)
