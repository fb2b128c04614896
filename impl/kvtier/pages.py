"""A page as the runtime keeps it: one small object, written by the store and by nobody else."""

from __future__ import annotations

from collections.abc import Hashable

from kvtier_spec import Phase

_OPEN = Phase.OPEN


class Page:
    """A block's KV data in one group: a set of replicas, with users.

    `slots[tier]` is the slot of its replica there, or None. `places[tier]` is the queue in which
    that replica stands, derived by `Queues.reconcile`. A twin knows the page that was found first
    under its key as its `mate`.
    """

    __slots__ = ("group", "holds", "id", "key", "mate", "phase", "pins", "places", "slots")

    def __init__(self, page_id: int, group: int, slots: list[int | None]) -> None:
        self.id = page_id
        self.group = group
        self.slots = slots
        self.places: list[int] = [0] * len(slots)
        self.phase = _OPEN
        self.pins = 0
        self.holds = 0
        self.key: Hashable | None = None
        self.mate: Page | None = None

    @property
    def primary(self) -> int:
        """The tier of its warmest replica."""
        return next(tier for tier, slot in enumerate(self.slots) if slot is not None)

    def __repr__(self) -> str:
        return (
            f"<page {self.id} {self.phase} slots={self.slots} pins={self.pins} holds={self.holds}>"
        )
