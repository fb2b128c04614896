"""The three answers to a demand for slots: granted, busy, or out of slots.

They are values, not exceptions: being refused is the ordinary life of a full cache. Only `Granted`
is true, so `if not sequence.resume(new=4): ...` reads as it should. `OutOfSlots` changed nothing.
`Busy` may have taken the slots (a sequence that is `resuming`; `suspend` gives them back), or begun
copies down.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Granted:
    """The demand was met: its pages are pinned on the gpu, its new pages are open.

    `recalled` pages came from the host now (not counting what landed before), `evicted` ones left
    the gpu for a colder tier.
    """

    recalled: int = 0
    evicted: int = 0

    def __bool__(self) -> bool:
        """Say yes."""
        return True


@dataclass(frozen=True, slots=True)
class Busy:
    """The demand can be met once these tickets have ended.

    Do other work, `poll`, and ask again; or `wait` for them. They are flights of the demand's own
    pages from a fallible tier; or copies down, already begun, that make room where only held pages
    stand in the way; or slots in quarantine after a copy that failed.
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
