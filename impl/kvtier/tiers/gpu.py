"""The gpu tier: slots in one tensor on any torch device.

torch is imported when a pool is made and not before: the core runs without it, with a `HostPool`
standing for the gpu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvtier.errors import CacheClosed, ConfigError
from kvtier.tiers.base import Bytes, Memory

if TYPE_CHECKING:
    import torch


class DevicePool(Memory):
    """Slots in a torch tensor of shape (slots, page_bytes), dtype uint8.

    `tensor` is made on `device`, or adopted: a runtime that owns its KV memory passes it, and it is
    left alone at close. An adopted tensor is contiguous, its first dimension the slots.
    """

    def __init__(
        self,
        slots: int,
        page_bytes: int,
        *,
        device: str = "cpu",
        tensor: torch.Tensor | None = None,
    ) -> None:
        module = _torch()
        self._is_adopted = tensor is not None
        if tensor is None:
            tensor = module.zeros((slots, page_bytes), dtype=module.uint8, device=device)
        self._tensor: torch.Tensor | None = _as_bytes(module, tensor, slots, page_bytes)

    @property
    def tensor(self) -> torch.Tensor:
        """The memory itself, one row a slot."""
        if self._tensor is None:
            raise CacheClosed("this memory was closed with its cache")
        return self._tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Say how many slots there are and the bytes of each."""
        slots, page_bytes = self.tensor.shape
        return slots, page_bytes

    def read(self, slots: NDArray[np.int64]) -> Bytes:
        """Copy slots to the host."""
        index = _torch().from_numpy(slots).to(self.tensor.device)
        found: Bytes = self.tensor.index_select(0, index).cpu().numpy()
        return found

    def write(self, slots: NDArray[np.int64], data: Bytes) -> None:
        """Copy slots from the host; they are there when it returns, for any stream."""
        torch = _torch()
        index = torch.from_numpy(slots).to(self.tensor.device)
        rows = torch.from_numpy(np.ascontiguousarray(data)).to(self.tensor.device)
        self.tensor.index_copy_(0, index, rows)
        if self.tensor.is_cuda:
            torch.cuda.current_stream(self.tensor.device).synchronize()

    def resize(self, slots: int) -> None:
        """Have so many slots; `tensor` is another one afterwards. Not for adopted memory."""
        if self._is_adopted:
            raise ConfigError("adopted memory cannot be resized: its owner has its address")
        old = self.tensor
        kept = min(slots, len(old))
        try:
            new = old.new_zeros((slots, old.shape[1]))
        except RuntimeError as error:
            if slots > len(old):
                raise ConfigError(f"no device memory for {slots} slots: {error}") from error
            self._tensor = old[:slots]  # no memory to copy what is left: keep it where it is
            return
        new[:kept] = old[:kept]
        self._tensor = new

    @property
    def is_resizable(self) -> bool:
        """Say no of adopted memory."""
        return not self._is_adopted

    def close(self) -> None:
        """Let the tensor go."""
        self._tensor = None


def _torch() -> Any:  # noqa: ANN401 - a module
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            "a device pool needs torch: install kvtier[cuda], or leave the default host memory"
        ) from error
    return torch


def _as_bytes(torch: Any, tensor: Any, slots: int, page_bytes: int) -> Any:  # noqa: ANN401
    if not tensor.is_contiguous():
        raise ConfigError("an adopted tensor must be contiguous, its first dimension the slots")
    flat = tensor.view(torch.uint8).reshape(tensor.shape[0], -1)
    if tuple(flat.shape) != (slots, page_bytes):
        raise ConfigError(
            f"the adopted tensor has {flat.shape[0]} slots of {flat.shape[1]} bytes, "
            f"the cache asks for {slots} of {page_bytes}"
        )
    return flat
