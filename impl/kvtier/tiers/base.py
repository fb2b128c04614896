"""What a tier's memory can do for an engine: read and write whole slots.

Addresses are slots of a group, never pointers. Memory knows nothing of pages, keys or fences. A
tier of your own is one entry in the chain and one class: derive from `Memory`, write `shape`,
`read`, `write` and `close`, and the other two if they mean anything for it.

The memory of a fallible tier says that a slot cannot be read or written, or that its bytes are not
those that were written, by raising any exception, `OSError` by preference: to check the bytes is
its own business, nobody else does. It is called a slot at a time, from several threads at once; a
slot that is being written is not used by another call (one that was given up may still come back).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from kvtier.errors import ConfigError

Bytes = NDArray[np.uint8]
"""Shape (slots, page_bytes)."""


class Memory(ABC):
    """Slots of equal size."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Say how many slots there are and the bytes of each."""

    @abstractmethod
    def read(self, slots: NDArray[np.int64]) -> Bytes:
        """Give the bytes of some slots, as a copy on the host."""

    @abstractmethod
    def write(self, slots: NDArray[np.int64], data: Bytes) -> None:
        """Overwrite some slots; `data` has one row a slot."""

    @property
    def is_resizable(self) -> bool:
        """Say whether `resize` may be called."""
        return False

    def resize(self, slots: int) -> None:
        """Have so many slots from now on, the first ones with their bytes.

        Shrinking succeeds; growing raises ConfigError if there is no room, and changes nothing.
        """
        raise ConfigError(f"{type(self).__name__} cannot be resized to {slots} slots")

    def invalidate(self, kept: NDArray[np.int64]) -> None:
        """Make sure that nothing but these slots can ever be read back (a reset).

        A durable tier must say how; what is gone with the process needs nothing.
        """
        del kept

    @abstractmethod
    def close(self) -> None:
        """Return the memory; idempotent. Adopted memory is left alone."""
