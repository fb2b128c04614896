"""One frozen object that says what a cache is made of, validated where it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvtier.errors import ConfigError
from kvtier.policy import POLICIES
from kvtier_spec import GPU_HOST, Chain

MAX_SLOTS = 1 << 24
"""Slots of one tier and group: 16 M pages; more than that is a wrong unit."""

MAX_PAGE_BYTES = 1 << 30
"""Bytes of one page: 1 GiB."""


RUN_TIERS = 2
"""Length of the chains that this version runs."""


@dataclass(frozen=True, slots=True)
class Group:
    """Pages of one kind and size: a name, and the bytes of a page."""

    name: str = "full"
    page_bytes: int = 4096

    def __post_init__(self) -> None:
        if not (isinstance(self.page_bytes, int) and 1 <= self.page_bytes <= MAX_PAGE_BYTES):
            raise ConfigError(
                f"group {self.name!r}: page_bytes is {self.page_bytes}; give 1 to {MAX_PAGE_BYTES}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The tiers with their slots, the page groups, the policy.

    `slots` maps each tier of `chain` to its number of slots (of every group).
    `audit` replays the journal through the spec as it is written, and stops the cache at the first
    event that the spec forbids.

    >>> Config(slots={"gpu": 4, "host": 8}).policy
    'shadow_first'
    >>> Config(slots={"gpu": 4})
    Traceback (most recent call last):
    ...
    kvtier.errors.ConfigError: slots names ['gpu'], the chain has ['gpu', 'host']: give each a
    number
    """

    slots: Mapping[str, int]
    chain: Chain = GPU_HOST
    groups: tuple[Group, ...] = field(default=(Group(),))
    policy: str = "shadow_first"
    audit: bool = False

    def __post_init__(self) -> None:
        _check_chain(self.chain)
        _check_slots(self.slots, [tier.name for tier in self.chain.tiers])
        if not (isinstance(self.policy, str) and self.policy in POLICIES):
            raise ConfigError(f"no policy {self.policy!r}; there are {sorted(POLICIES)}")
        if len(self.groups) != 1:
            raise ConfigError(f"{len(self.groups)} groups given; this version runs exactly one")


def _check_chain(chain: Chain) -> None:
    if len(chain) != RUN_TIERS:
        raise ConfigError(f"chain '{chain}': this version runs two tiers; the spec knows more")


def _check_slots(slots: Mapping[str, int], names: list[str]) -> None:
    if sorted(slots) != sorted(names):
        raise ConfigError(
            f"slots names {sorted(slots)}, the chain has {sorted(names)}: give each a number"
        )
    for name, count in slots.items():
        least = 1 if name == names[0] else 0
        if not (isinstance(count, int) and least <= count <= MAX_SLOTS):
            raise ConfigError(f"tier {name!r} has {count} slots; give {least} to {MAX_SLOTS}")
