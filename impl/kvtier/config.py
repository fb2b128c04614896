"""One frozen object that says what a cache is made of, validated where it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvtier.errors import ConfigError
from kvtier.policy import COLD_POLICIES, POLICIES
from kvtier_spec import GPU_HOST, Chain

MAX_SLOTS = 1 << 24
"""Slots of one tier and group: 16 M pages; more than that is a wrong unit."""

MAX_PAGE_BYTES = 1 << 30
"""Bytes of one page: 1 GiB."""

DEMOTE = ("ahead", "on_demand")
"""When pages are written down: by the cleaner before they must go, or when they must."""


@dataclass(frozen=True, slots=True)
class Group:
    """Pages of one kind and size: a name, the bytes of a page, and how much of a prefix it needs.

    `window` is how many of the last blocks a hit needs: None is full attention (all of them), a
    number is a sliding window in blocks, 1 is a state (the last one alone). Pages that have left
    the window are given up while their sequence is active, and stay findable.

    >>> Group("swa", 65536, window=4).first_needed(10)
    6
    """

    name: str = "full"
    page_bytes: int = 4096
    window: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.page_bytes, int) and 1 <= self.page_bytes <= MAX_PAGE_BYTES):
            raise ConfigError(
                f"group {self.name!r}: page_bytes is {self.page_bytes}; give 1 to {MAX_PAGE_BYTES}"
            )
        if self.window is not None and not (isinstance(self.window, int) and self.window >= 1):
            raise ConfigError(
                f"group {self.name!r}: window is {self.window!r}; give 1 or more blocks, or None"
            )

    def first_needed(self, blocks: int) -> int:
        """Say from which block on a prefix of so many blocks needs this group's pages."""
        return 0 if self.window is None else max(0, blocks - self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The tiers with their slots, the page groups, the policies.

    `slots` maps each tier of `chain` to its number of slots: one number for every group, or a
    mapping by the name of the group. `policy` is that of gpu and host; `cold_policy` says, of each
    tier behind the host, what becomes of the copy there when a page comes up (`none`: it goes).
    `demote="ahead"` writes the coldest pages of a tier down as soon as less than `clean_low` of its
    slots could be had without a loss, until `clean_high` could; `"on_demand"` writes them when they
    must go, and lets the demand wait for it.
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

    slots: Mapping[str, int | Mapping[str, int]]
    chain: Chain = GPU_HOST
    groups: tuple[Group, ...] = field(default=(Group(),))
    policy: str = "shadow_first"
    cold_policy: str = "shadow_first"
    demote: str = "ahead"
    clean_low: float = 0.5
    clean_high: float = 0.75
    audit: bool = False

    def __post_init__(self) -> None:
        _check_chain(self.chain)
        _check_groups(self.groups)
        _check_names(self.slots, [tier.name for tier in self.chain.tiers], "slots", "the chain")
        for tier in self.chain.tiers:
            self._check_slots(tier.name)
        _check_choice("policy", self.policy, POLICIES)
        _check_choice("cold_policy", self.cold_policy, COLD_POLICIES)
        _check_choice("demote", self.demote, DEMOTE)
        if not 0 <= self.clean_low <= self.clean_high <= 1:
            raise ConfigError(
                f"clean_low is {self.clean_low} and clean_high {self.clean_high}: give shares of "
                "a tier's slots, from 0 to 1, the low one first"
            )

    def _check_slots(self, tier: str) -> None:
        given = self.slots[tier]
        if isinstance(given, Mapping):
            names = [group.name for group in self.groups]
            _check_names(given, names, f"slots of {tier!r}", "the groups")
        least = 1 if tier == self.chain.tiers[0].name else 0
        for count in self.slots_of(tier):
            if not (isinstance(count, int) and least <= count <= MAX_SLOTS):
                raise ConfigError(f"tier {tier!r} has {count!r} slots; give {least} to {MAX_SLOTS}")

    def slots_of(self, tier: str) -> list[int]:
        """Say how many slots a tier has, group by group."""
        given = self.slots[tier]
        if isinstance(given, Mapping):
            return [given[group.name] for group in self.groups]
        return [given for _ in self.groups]


def _check_chain(chain: Chain) -> None:
    fallible = [tier.fallible for tier in chain.tiers[2:]]
    if not all(fallible):
        name = chain.tiers[2 + fallible.index(False)].name
        raise ConfigError(
            f"chain '{chain}': {name!r} cannot fail; behind the second tier this version runs "
            "fallible tiers only (the spec knows more)"
        )


def _check_groups(groups: tuple[Group, ...]) -> None:
    names = [group.name for group in groups]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"groups are named {names}: give at least one, each another name")


def _check_names(given: Mapping[str, object], names: list[str], what: str, whose: str) -> None:
    if sorted(given) != sorted(names):
        verb = "has" if whose == "the chain" else "have"
        raise ConfigError(
            f"{what} names {sorted(given)}, {whose} {verb} {sorted(names)}: give each a number"
        )


def _check_choice(
    field_name: str, value: object, known: Mapping[str, object] | tuple[str, ...]
) -> None:
    if not (isinstance(value, str) and value in known):
        raise ConfigError(f"no {field_name} {value!r}; there are {sorted(known)}")
