"""A chain of memory tiers, warm to cold: the one input from which the lifecycle is generated.

A tier is one entry here. What distinguishes tiers is three facts, not code:
`writable` (open pages are written there: the first tier and no other), `fallible` (one transfer may
fail, or never end, while all else goes on) and `durable` (committed replicas outlive the process).
Copies between infallible tiers are single events in the order of the device lanes; a copy to or
from a fallible tier is a flight that lands or fails. Fallible tiers therefore come last, behind at
least one infallible tier that is not written by kernels: there is no gpu -> disk move.
"""

from __future__ import annotations

from dataclasses import dataclass

MIN_TIERS = 2
"""A chain of one tier has nothing to move."""


class ChainError(ValueError):
    """A chain that the lifecycle cannot be generated from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    writable: bool = False
    fallible: bool = False
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Tier(_Facts):
    """One kind of memory.

    >>> Tier("disk", fallible=True, durable=True).fallible
    True
    """

    name: str

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ChainError(f"tier name {self.name!r} is no identifier; name it like 'host'")


@dataclass(frozen=True, slots=True, init=False)
class Chain:
    """Tiers from warm to cold.

    >>> str(Chain(Tier("gpu", writable=True), Tier("host")))
    'gpu host'
    """

    tiers: tuple[Tier, ...]

    def __init__(self, *tiers: Tier) -> None:
        object.__setattr__(self, "tiers", tiers)
        problem = _problem(tiers)
        if problem:
            raise ChainError(f"chain {self}: {problem}")

    def __len__(self) -> int:
        return len(self.tiers)

    def __str__(self) -> str:
        return " ".join(tier.name for tier in self.tiers)

    def index(self, name: str) -> int:
        """Say where in the chain a tier stands, 0 being the warmest."""
        for position, tier in enumerate(self.tiers):
            if tier.name == name:
                return position
        raise ChainError(f"no tier {name!r} in chain {self}; it has {str(self).split()}")

    def is_eager(self, source: int, target: int) -> bool:
        """Say whether a copy is one event (both ends infallible) instead of a flight."""
        return not (self.tiers[source].fallible or self.tiers[target].fallible)

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """List every (source, target) of different tiers."""
        span = range(len(self.tiers))
        return tuple((source, target) for source in span for target in span if source != target)


def _problem(tiers: tuple[Tier, ...]) -> str | None:
    if len(tiers) < MIN_TIERS:
        return "needs at least two tiers"
    if len({tier.name for tier in tiers}) != len(tiers):
        return "tier names must differ"
    if [tier.writable for tier in tiers] != [True] + [False] * (len(tiers) - 1):
        return "the first tier, and no other, is writable"
    if tiers[0].fallible or tiers[1].fallible:
        return "the first two tiers are infallible: a writable tier has no move to a fallible one"
    fallible = [tier.fallible for tier in tiers]
    if fallible != sorted(fallible):
        return "fallible tiers come last"
    return None


GPU_HOST = Chain(Tier("gpu", writable=True), Tier("host"))
GPU_HOST_DISK = Chain(*GPU_HOST.tiers, Tier("disk", fallible=True, durable=True))
GPU_HOST_DISK_REMOTE = Chain(*GPU_HOST_DISK.tiers, Tier("remote", fallible=True, durable=True))
