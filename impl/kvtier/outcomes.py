"""The three answers to a demand for slots: granted, busy, or out of slots.

They are values, not exceptions: being refused is the ordinary life of a full cache. Only `Granted`
is true, so `if not sequence.resume(new=4): ...` reads as it should. A refusal changed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Granted:
    """The demand was met: its pages are pinned on the gpu, its new pages are open."""

    recalled: int = 0
    evicted: int = 0

    def __bool__(self) -> bool:
        """Say yes."""
        return True


@dataclass(frozen=True, slots=True)
class Busy:
    """The demand will be met, if nothing else changes, once these tickets have ended.

    Do other work, `poll`, and ask again; or `wait` for them. With gpu and host alone this is so
    only while slots are in quarantine after a copy that failed half submitted.
    """

    tickets: tuple[int, ...]

    def __bool__(self) -> bool:
        """Say no."""
        return False


@dataclass(frozen=True, slots=True)
class Holder:
    """What one sequence keeps of a full tier."""

    sequence: int
    pinned: int
    held: int


@dataclass(frozen=True, slots=True)
class OutOfSlots:
    """The demand cannot be met, whatever is given up: what was asked, what there is, who has it."""

    tier: str
    group: str
    asked: int
    available: int
    holders: tuple[Holder, ...] = ()

    def __bool__(self) -> bool:
        """Say no."""
        return False

    def __str__(self) -> str:
        who = ", ".join(
            f"sequence {h.sequence} ({h.pinned} pinned, {h.held} held)" for h in self.holders
        )
        return (
            f"out of slots on {self.tier}, group {self.group}: {self.asked} asked, "
            f"{self.available} available; in use by {who or 'nobody'}"
        )


Outcome = Granted | Busy | OutOfSlots
