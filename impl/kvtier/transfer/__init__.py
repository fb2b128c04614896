"""Engines that copy pages between tiers: `null` (book-keeping only) and `cpu` (real bytes)."""

from kvtier.transfer.base import (
    CALLER,
    FLIGHT,
    OFFLOAD,
    RECALL,
    Copies,
    CopyFault,
    CopyRefused,
    Ended,
    Engine,
)
from kvtier.transfer.cpu import CpuEngine
from kvtier.transfer.null import NullEngine

__all__ = [
    "CALLER",
    "FLIGHT",
    "OFFLOAD",
    "RECALL",
    "Copies",
    "CopyFault",
    "CopyRefused",
    "CpuEngine",
    "Ended",
    "Engine",
    "NullEngine",
]
