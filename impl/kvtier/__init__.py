"""kvtier: KV-cache pages on GPU, host and disk, moved rightly.

`Cache` is the public face; `kvtier_spec` is the lifecycle that it obeys.
"""

from kvtier.cache import Cache, Demand
from kvtier.config import Config, Group
from kvtier.errors import (
    BadRequest,
    CacheClosed,
    CacheFailed,
    ConfigError,
    CopyFailed,
    KvtierError,
    PageLost,
    SpecViolation,
    StaleHandle,
    TierFailed,
    WrongState,
)
from kvtier.keys import Scope, block_keys
from kvtier.outcomes import Busy, Granted, Holder, Outcome, OutOfSlots
from kvtier.sequence import Sequence, SlotTable
from kvtier.stats import Stats
from kvtier.transfer import CpuEngine, NullEngine
from kvtier_spec import SequenceState

__all__ = [
    "BadRequest",
    "Busy",
    "Cache",
    "CacheClosed",
    "CacheFailed",
    "Config",
    "ConfigError",
    "CopyFailed",
    "CpuEngine",
    "Demand",
    "Granted",
    "Group",
    "Holder",
    "KvtierError",
    "NullEngine",
    "OutOfSlots",
    "Outcome",
    "PageLost",
    "Scope",
    "Sequence",
    "SequenceState",
    "SlotTable",
    "SpecViolation",
    "StaleHandle",
    "Stats",
    "TierFailed",
    "WrongState",
    "block_keys",
]
