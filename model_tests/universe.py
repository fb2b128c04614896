"""The small universe that the driver plays in: prompts, keys, bytes, tiers, and who uses what."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvtier import Group, Sequence
from kvtier.tiers import HostPool
from kvtier_spec import GPU_HOST, GPU_HOST_DISK, GPU_HOST_DISK_REMOTE, Chain

CHAINS = {2: GPU_HOST, 3: GPU_HOST_DISK, 4: GPU_HOST_DISK_REMOTE}
FULL = (Group("full", 8),)
GROUPS: tuple[tuple[Group, ...], ...] = (
    FULL,
    (Group("full", 8), Group("window", 16, window=2)),
    (Group("full", 8), Group("state", 24, window=1)),
    (Group("window", 8, window=2), Group("state", 8, window=1)),
)
"""Groups of a run: one in most, or two of different size and need."""

PROMPTS: tuple[tuple[str, ...], ...] = (
    ("a", "ab", "abc", "abcd"),
    ("a", "ab", "abx"),
    ("p", "pq", "pqr"),
    ("pq", "pqr"),
    (),
)
"""A small universe: two prompts share a prefix, one leaves the first block of another out (so that
look-ups find gaps), one is empty."""
MAX_SEQUENCES = 4
NEW = (0, 1, 2, 5)
"""How many pages a resume may open: some, and more than is easily there."""

OFTEN = {"resume": 8, "finish": 8, "sequence": 6, "suspend": 6, "wait": 6, "pump": 6, "commit": 6}
RARELY = {"reset": 1, "resize": 1, "poll": 1, "give_up": 2, "flaky": 2}
"""How often a call is drawn by its name; the others 4 times. After a reset little is left to see,
so a run has one now and then."""


def drawn_names(names: Iterable[str]) -> list[str]:
    """List names as often as they are to be drawn."""
    weights = {**OFTEN, **RARELY}
    return [name for name in sorted(names) for _ in range(weights.get(name, 4))]


Call = tuple[Any, ...]
Fail = tuple[int, int] | None
"""Which submission fails, and how many of its copies are queued."""


@dataclass(frozen=True)
class Setup:
    """What a run is made of; `colder` are the slots of the tiers behind the host."""

    policy: str
    gpu: int
    host: int
    engine: str = "null"
    colder: tuple[int, ...] = ()
    cold_policy: str = "shadow_first"
    demote: str = "ahead"
    groups: tuple[Group, ...] = FULL

    @property
    def chain(self) -> Chain:
        """The chain of so many tiers."""
        return CHAINS[2 + len(self.colder)]

    @property
    def slots(self) -> dict[str, int]:
        """Slots by tier."""
        names = [tier.name for tier in self.chain.tiers]
        return dict(zip(names, (self.gpu, self.host, *self.colder), strict=True))


@dataclass
class User:
    """A sequence and what its owner knows: its open pages' bytes, its slots and blocks."""

    sequence: Sequence
    tokens: list[int] = field(default_factory=list)
    slots: list[dict[int, int]] | None = None
    """By group: block to slot, while pinned."""
    blocks: tuple[int, int] = (0, 0)
    """Committed and open blocks when it was last used, or told of a loss."""
    era: int = 0
    """How many resets there had been when it was made."""

    @property
    def stream(self) -> str:
        """The stream that this sequence computes on."""
        return f"stream {self.sequence.id}"


class FlakyPool(HostPool):
    """A fallible tier in memory: `fail_next(n)` lets the next `n` rows raise."""

    def __init__(self, slots: int, page_bytes: int) -> None:
        super().__init__(slots, page_bytes)
        self._failing = 0

    def fail_next(self, rows: int) -> None:
        """Let so many rows fail."""
        self._failing = rows

    def read(self, slots: Any) -> Any:
        """Read, or fail."""
        self._maybe_fail()
        return super().read(slots)

    def write(self, slots: Any, data: Any) -> None:
        """Write, or fail."""
        self._maybe_fail()
        super().write(slots, data)

    def _maybe_fail(self) -> None:
        if self._failing:
            self._failing -= 1
            raise OSError("the tier fails in this test")


def key_of(sequence: Sequence, position: int) -> str:
    """The key of a position: the prompt's, then what this conversation generates."""
    if position < len(sequence.prompt):
        return str(sequence.prompt[position])
    return "".join(map(str, sequence.prompt[-1:])) + "~" * (position - len(sequence.prompt) + 1)


def token_of(key: str) -> int:
    """Derive the bytes of a committed page from its key."""
    return 1000 + sum(ord(sign) * 31**place for place, sign in enumerate(key)) % (1 << 60)


def rows_of(tokens: Seq[int], group: int = 0, page_bytes: int = 8) -> Any:
    """Write tokens as pages of a group, a row each."""
    words = np.array(tokens, np.int64)[:, None] + group * 1_000_003
    return np.repeat(words, page_bytes // 8, axis=1).view(np.uint8)


def needs(group: Group, blocks: int) -> range:
    """List the blocks that a group needs of a prefix: said once more than in the product."""
    if group.window is None:
        return range(blocks)
    return range(max(0, blocks - group.window), blocks)
