"""The small universe that the driver plays in: prompts, keys, bytes, and who uses what."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvtier import Sequence

PAGE_BYTES = 8
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

Call = tuple[Any, ...]
Fail = tuple[int, int] | None
"""Which submission fails, and how many of its copies are queued."""


@dataclass(frozen=True)
class Setup:
    """What a run is made of."""

    policy: str
    gpu: int
    host: int
    engine: str = "null"


@dataclass
class User:
    """A sequence and what its owner knows: the bytes of its open pages, its slots while pinned."""

    sequence: Sequence
    tokens: list[int] = field(default_factory=list)
    slots: list[int] | None = None

    @property
    def stream(self) -> str:
        """The stream that this sequence computes on."""
        return f"stream {self.sequence.id}"


def key_of(sequence: Sequence, position: int) -> str:
    """The key of a position: the prompt's, then what this conversation generates."""
    if position < len(sequence.prompt):
        return str(sequence.prompt[position])
    return "".join(map(str, sequence.prompt[-1:])) + "~" * (position - len(sequence.prompt) + 1)


def token_of(key: str) -> int:
    """Derive the bytes of a committed page from its key."""
    return 1000 + sum(ord(sign) * 31**place for place, sign in enumerate(key))


def rows_of(tokens: Seq[int]) -> Any:
    """Write tokens as pages, a row each."""
    return np.array(tokens, np.int64)[:, None].view(np.uint8)
