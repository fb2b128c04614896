"""What a runtime writes into its journal: one record is one kind of event for many pages.

A journal is a stream of batches; a batch is a list of records and was committed as a unit. Records
carry arrays, because a runtime moves hundreds of pages at once and pays for each object it makes.
The spec reads them (`trace.py`), and so do metrics and other subscribers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from kvtier_spec.vocabulary import Kind


@dataclass(slots=True)
class Record:
    """One kind of event, for pages in order.

    `slots` has one entry a page where the event takes slots (open, copy, start), and names slots
    themselves in slot events. `source` and `target` are tier positions; events of one tier name it
    as `target`. `keys` and `fence` belong to commits, `twins` to joins.

    `is_private` marks the commit of twins, `is_late` a commit that a reset has overtaken,
    `is_touched` the failure of a job that may still touch its target, `is_fault` a loss by a device
    fault, `is_eviction` a release of the warmest replica: the page goes down without a copy.

    >>> Record(Kind.RELEASE, [4, 7], target=1).pages
    [4, 7]
    """

    kind: Kind
    pages: Sequence[int] = ()
    slots: Sequence[int] = ()
    source: int = 0
    target: int = 0
    group: int = 0
    keys: Sequence[Hashable] = ()
    twins: Sequence[int] = ()
    fence: tuple[int, int] | None = None
    is_private: bool = False
    is_touched: bool = False
    is_fault: bool = False
    is_late: bool = False
    is_eviction: bool = False


Batch = Sequence[Record]
