"""Submissions and fences: the one place where a copy can fail, and all that orders slots.

A submission reserves its target slots and waits for their last use and for the last write of its
sources. Refused, it gives the targets back; half queued, it sets them aside until the lane has
passed, and its sources know the copies that may still read them. Users of pages are ordered the
same way: before they use a slot, and by handing their last use on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kvtier.errors import CopyFailed
from kvtier.journal import Journal
from kvtier.pages import GPU, Page
from kvtier.slots import Fence, SlotPool, Slots, merge_fences
from kvtier.transfer import Copies, CopyFault, CopyRefused, Engine
from kvtier_spec import Kind, Phase, Record


class Quarantined(NamedTuple):
    """Slots put aside until a lane has passed a fence; the ticket names them to the caller."""

    ticket: int
    tier: int
    group: int
    slots: Slots
    fence: Fence


@dataclass(slots=True)
class Submissions:
    """Copies of one store, and the fences of its slots."""

    pools: Sequence[Sequence[SlotPool]]
    engine: Engine
    journal: Journal
    quarantined: list[Quarantined] = field(default_factory=list)
    tickets: int = 0
    """How many tickets were handed out."""

    def submit(
        self, stage: str, lane: int, source: int, target: int, pages: Sequence[Page]
    ) -> Slots:
        """Reserve target slots and submit copies; CopyFailed leaves all else as it was."""
        group = pages[0].group
        from_pool, to_pool = self.pools[source][group], self.pools[target][group]
        sources, targets = slots_of(pages, source), to_pool.take(len(pages))
        waits = self.waits(source, target, group, sources, targets)
        waits.pop(lane, None)
        try:
            fence = self.engine.submit(Copies(lane, group, source, target, sources, targets), waits)
        except CopyRefused as error:
            to_pool.give(targets)
            raise CopyFailed(stage, 0, str(error)) from error
        except CopyFault as error:
            self.set_aside(target, group, targets, lane)
            from_pool.note_read(sources, self.engine.record(lane))
            raise CopyFailed(stage, error.queued, str(error)) from error
        from_pool.note_read(sources, fence)
        to_pool.note_write(targets, fence)
        return targets

    def waits(
        self, source: int, target: int, group: int, sources: Slots, targets: Slots
    ) -> dict[int, int]:
        """Say what copies must wait for: last writes of sources, all uses of targets."""
        found = self.pools[source][group].fences_to_read(sources)
        merge_fences(found, self.pools[target][group].fences_to_write(targets))
        return found

    def ticket(self) -> int:
        """Hand a ticket out."""
        self.tickets += 1
        return self.tickets - 1

    def set_aside(self, tier: int, group: int, slots: Slots, lane: int) -> None:
        """Quarantine taken slots until all that a lane has queued so far is over."""
        self.pools[tier][group].quarantine(slots)
        fence = self.engine.record(lane)
        self.quarantined.append(Quarantined(self.ticket(), tier, group, slots, fence))
        self.journal.emit([Record(Kind.QUARANTINE, slots=slots.tolist(), target=tier, group=group)])

    def poll(self) -> None:
        """Readmit quarantined slots whose jobs have ended."""
        still = []
        for aside in self.quarantined:
            if not self.engine.is_done(aside.fence):
                still.append(aside)
                continue
            self.readmit(aside.tier, aside.group, aside.slots)
        self.quarantined = still

    def readmit(self, tier: int, group: int, slots: Slots) -> None:
        """Give slots back whose job has ended."""
        self.pools[tier][group].readmit(slots)
        self.journal.emit([Record(Kind.READMIT, slots=slots.tolist(), target=tier, group=group)])

    def note_use(self, pages: Sequence[Page], fence: Fence) -> None:
        """Hand a user's last use of pinned pages to their slots: reads; of open pages, writes."""
        if pages:
            self.pools[GPU][pages[0].group].note_read(slots_of(pages, GPU), fence)
            self.note_writes([page for page in pages if page.phase is Phase.OPEN], fence)

    def note_writes(self, pages: Sequence[Page], fence: Fence) -> None:
        """Remember that the work up to a fence writes the gpu slots of these pages."""
        if pages:
            self.pools[GPU][pages[0].group].note_write(slots_of(pages, GPU), fence)

    def order_user(self, pages: Sequence[Page], lane: int) -> None:
        """Order a lane before it uses pinned pages of one group.

        It comes after the last writes of what it reads, and after all use of what it may write:
        open pages, new or not (a copy of theirs that failed half submitted may still read them).
        """
        if not pages:
            return
        pool = self.pools[GPU][pages[0].group]
        fences = pool.fences_to_read(slots_of(pages, GPU))
        writable = [page for page in pages if page.phase is Phase.OPEN]
        merge_fences(fences, pool.fences_to_write(slots_of(writable, GPU)))
        fences.pop(lane, None)
        if fences:
            self.engine.wait(lane, fences)


def slots_of(pages: Sequence[Page], tier: int) -> Slots:
    """List the slots of pages on one tier."""
    return np.array([page.slots[tier] for page in pages], np.int64)
