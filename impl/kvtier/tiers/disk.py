"""The disk tier: one preallocated file, a slot at a fixed place, a checksum for each.

Checksums are kept in memory: what is read and differs, a short read among it, is an `OSError` and
so a miss, never wrong bytes. The file has no keys in it and no name: nothing outlives the process.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kvtier.errors import CacheClosed, ConfigError
from kvtier.tiers.base import Bytes, Memory


class DiskFile(Memory):
    """Slots in a temporary file without a name, in `folder` or where temporary files go.

    It is gone with the process, whatever becomes of that. Nothing is cached here; the operating
    system's page cache is used as it is.

    >>> disk = DiskFile(4, 16)
    >>> disk.write(np.array([2]), np.full((1, 16), 7, np.uint8))
    >>> int(disk.read(np.array([2]))[0, 0])
    7
    >>> disk.close()
    """

    def __init__(self, slots: int, page_bytes: int, *, folder: Path | None = None) -> None:
        self._page_bytes = page_bytes
        self._sums: list[int | None] = [None] * slots
        try:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close()
            try:
                _allocate(self._file.fileno(), slots * page_bytes)
            except OSError:
                self._file.close()
                raise
        except OSError as error:
            where = folder or tempfile.gettempdir()
            raise ConfigError(
                f"no room on disk for {slots} slots of {page_bytes} bytes in {where}: {error}"
            ) from error

    @property
    def shape(self) -> tuple[int, int]:
        """Say how many slots there are and the bytes of each."""
        return len(self._sums), self._page_bytes

    def read(self, slots: NDArray[np.int64]) -> Bytes:
        """Read slots; OSError if one is not what was written."""
        found = np.empty((len(slots), self._page_bytes), np.uint8)
        for row, slot in zip(found, slots.tolist(), strict=True):
            size = os.preadv(self._number(), [row.data], slot * self._page_bytes)
            if size != self._page_bytes:
                raise OSError(f"slot {slot}: {size} bytes read of {self._page_bytes}")
            if crc32(row.data) != self._sums[slot]:
                raise OSError(f"slot {slot}: the bytes read are not those written")
        return found

    def write(self, slots: NDArray[np.int64], data: Bytes) -> None:
        """Write slots; OSError leaves the slot unreadable."""
        for row, slot in zip(np.ascontiguousarray(data), slots.tolist(), strict=True):
            self._sums[slot] = None
            size = os.pwrite(self._number(), row.data, slot * self._page_bytes)
            if size != self._page_bytes:
                raise OSError(f"slot {slot}: {size} bytes written of {self._page_bytes}")
            self._sums[slot] = crc32(row.data)

    @property
    def is_resizable(self) -> bool:
        """Say yes."""
        return True

    def resize(self, slots: int) -> None:
        """Have so many slots."""
        try:
            _allocate(self._number(), slots * self._page_bytes)
        except OSError as error:
            raise ConfigError(f"no room on disk for {slots} slots: {error}") from error
        del self._sums[slots:]
        self._sums += [None] * (slots - len(self._sums))

    def invalidate(self, kept: NDArray[np.int64]) -> None:
        """Forget the checksums of all other slots: what they hold cannot be read any more."""
        stays = set(kept.tolist())
        for slot in range(len(self._sums)):
            if slot not in stays:
                self._sums[slot] = None

    def close(self) -> None:
        """Close the file; it is gone then."""
        self._file.close()

    def _number(self) -> int:
        if self._file.closed:
            raise CacheClosed("this file was closed with its cache")
        return self._file.fileno()


def _allocate(number: int, size: int) -> None:
    """Have a file of this size, its blocks reserved where the system can."""
    os.ftruncate(number, size)
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(number, 0, size)
