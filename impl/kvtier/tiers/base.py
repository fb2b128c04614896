"""What a tier's memory can do for an engine: read and write whole slots.

Addresses are slots of a group, never pointers. Memory knows nothing of pages, keys or fences.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
"""Shape (slots, page_bytes)."""


class Memory(Protocol):
    """Slots of equal size."""

    @property
    def shape(self) -> tuple[int, int]:
        """Say how many slots there are and the bytes of each."""

    def read(self, slots: NDArray[np.int64]) -> Bytes:
        """Give the bytes of some slots, as a copy on the host."""

    def write(self, slots: NDArray[np.int64], data: Bytes) -> None:
        """Overwrite some slots; `data` has one row a slot."""

    def close(self) -> None:
        """Return the memory; idempotent. Adopted memory is left alone."""
