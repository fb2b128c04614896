"""The host tier: page-contiguous slots in one numpy array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvtier.errors import CacheClosed, ConfigError
from kvtier.tiers.base import Bytes, Memory


class HostPool(Memory):
    """Slots in host memory; also what stands for the gpu where there is no torch.

    `array` has shape (slots, page_bytes), dtype uint8: users write their open pages into it.

    >>> pool = HostPool(4, 16)
    >>> pool.write(np.array([2]), np.full((1, 16), 7, np.uint8))
    >>> int(pool.read(np.array([2]))[0, 0])
    7
    """

    def __init__(self, slots: int, page_bytes: int) -> None:
        self._array: Bytes | None = _zeros(slots, page_bytes)

    @property
    def array(self) -> Bytes:
        """The memory itself."""
        if self._array is None:
            raise CacheClosed("this memory was closed with its cache")
        return self._array

    @property
    def shape(self) -> tuple[int, int]:
        """Say how many slots there are and the bytes of each."""
        return self.array.shape

    def read(self, slots: NDArray[np.int64]) -> Bytes:
        """Copy slots out."""
        return self.array[slots]

    def write(self, slots: NDArray[np.int64], data: Bytes) -> None:
        """Copy slots in."""
        self.array[slots] = data

    @property
    def is_resizable(self) -> bool:
        """Say yes."""
        return True

    def resize(self, slots: int) -> None:
        """Have so many slots; `array` is another one afterwards."""
        old = self.array
        try:
            new = _zeros(slots, old.shape[1])
        except ConfigError:
            if slots > len(old):
                raise
            self._array = old[:slots]  # no memory to copy what is left: keep it where it is
            return
        kept = min(slots, len(old))
        new[:kept] = old[:kept]
        self._array = new

    def invalidate(self, kept: NDArray[np.int64]) -> None:
        """Overwrite all other slots with zeros."""
        others = np.ones(len(self.array), bool)
        others[kept] = False
        self.array[others] = 0

    def close(self) -> None:
        """Let the memory go."""
        self._array = None


def _zeros(slots: int, page_bytes: int) -> Bytes:
    try:
        return np.zeros((slots, page_bytes), np.uint8)
    except MemoryError as error:
        size = slots * page_bytes
        raise ConfigError(f"no host memory for {slots} slots, {size} bytes") from error
