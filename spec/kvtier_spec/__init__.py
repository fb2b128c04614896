"""kvtier_spec: the lifecycle of a tiered KV-cache page as an explicit, executable state machine.

One table (`lifecycle.RULES`) and one declaration of states (`states.generate`), both generated from
a `Chain` of tiers, are the source of everything else: the reference machine, the trace checker, the
explorer, the census, the pictures. Nothing here knows the runtime, and nothing does I/O.
"""

from kvtier_spec.chain import (
    GPU_HOST,
    GPU_HOST_DISK,
    GPU_HOST_DISK_REMOTE,
    Chain,
    ChainError,
    Tier,
)
from kvtier_spec.invariants import Snapshot, Violation
from kvtier_spec.records import Batch, Record
from kvtier_spec.trace import Checker, TraceError
from kvtier_spec.vocabulary import Kind, Phase, SequenceState, SlotState

__all__ = [
    "GPU_HOST",
    "GPU_HOST_DISK",
    "GPU_HOST_DISK_REMOTE",
    "Batch",
    "Chain",
    "ChainError",
    "Checker",
    "Kind",
    "Phase",
    "Record",
    "SequenceState",
    "SlotState",
    "Snapshot",
    "Tier",
    "TraceError",
    "Violation",
]
