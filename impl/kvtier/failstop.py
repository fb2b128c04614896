"""Fail stop: after an error inside a commit nothing goes on from a broken state.

State changes happen inside `guard()`. A failed copy leaves a legal state and passes; everything
else, Ctrl-C among it, is remembered with the last events of the journal, and from then on `check()`
raises a fresh error that says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvtier.errors import CacheFailed, CopyFailed, SpecViolation
from kvtier.journal import Journal
from kvtier_spec import TraceError


class FailStop:
    """Whether a cache has stopped, and why."""

    def __init__(self, journal: Journal) -> None:
        self.failure: CacheFailed | None = None
        self._journal = journal

    def check(self) -> None:
        """Raise if the cache has stopped."""
        if self.failure is not None:
            raise self.failure.again()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Stop the cache if anything but a failed copy goes wrong in here."""
        try:
            yield
        except CopyFailed:
            raise
        except TraceError as error:
            self.failure = SpecViolation(str(error), self._journal.tail())
            raise self.failure from error
        except BaseException as error:
            self.failure = CacheFailed(repr(error), self._journal.tail())
            raise
