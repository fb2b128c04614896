"""Engines that copy pages between tiers: `null` (book-keeping only) and `cpu` (real bytes)."""

from kvtier.transfer.base import CALLER, OFFLOAD, RECALL, Copies, CopyFault, CopyRefused, Engine
from kvtier.transfer.cpu import CpuEngine
from kvtier.transfer.null import NullEngine

__all__ = [
    "CALLER",
    "OFFLOAD",
    "RECALL",
    "Copies",
    "CopyFault",
    "CopyRefused",
    "CpuEngine",
    "Engine",
    "NullEngine",
]
