"""Engines that copy pages between tiers: `null` (book-keeping only) and `cpu` (real bytes)."""

from kvtier.transfer.base import HOST, OFFLOAD, RECALL, Copies, CopyFault, CopyRefused, Engine
from kvtier.transfer.cpu import CpuEngine
from kvtier.transfer.null import NullEngine

__all__ = [
    "HOST",
    "OFFLOAD",
    "RECALL",
    "Copies",
    "CopyFault",
    "CopyRefused",
    "CpuEngine",
    "Engine",
    "NullEngine",
]
