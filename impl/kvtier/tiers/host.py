"""The host tier: page-contiguous slots in one numpy array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvtier.errors import CacheClosed, ConfigError
from kvtier.tiers.base import Bytes


class HostPool:
    """Slots in host memory; also what stands for the gpu where there is no torch.

    `array` has shape (slots, page_bytes), dtype uint8: users write their open pages into it.

    >>> pool = HostPool(4, 16)
    >>> pool.write(np.array([2]), np.full((1, 16), 7, np.uint8))
    >>> int(pool.read(np.array([2]))[0, 0])
    7
    """

    def __init__(self, slots: int, page_bytes: int) -> None:
        try:
            self._array: Bytes | None = np.zeros((slots, page_bytes), np.uint8)
        except MemoryError as error:
            size = slots * page_bytes
            raise ConfigError(f"no host memory for {slots} slots, {size} bytes") from error

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

    def close(self) -> None:
        """Let the memory go."""
        self._array = None
