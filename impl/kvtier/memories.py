"""The memories of a configuration: made by the classes of the tiers, checked, and invalidated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kvtier.config import Config
from kvtier.errors import ConfigError, TierFailed
from kvtier.slots import SlotPool
from kvtier.tiers import DiskFile, HostPool, Memory

Factory = Callable[[int, int], Memory]
"""Makes the memory of one tier and group: (slots, page_bytes) -> memory."""


def make_memories(config: Config, tiers: Mapping[str, Factory]) -> list[list[Memory]]:
    """Make every tier and group, by the classes given or the default ones.

    A tier that cannot fail is host memory by default (one stands for the gpu), `disk` a temporary
    file; any other must be given.
    """
    known = [tier.name for tier in config.chain.tiers]
    if unknown := sorted(set(tiers) - set(known)):
        raise ConfigError(f"memory is given for {unknown}; the chain has {known}")
    found: list[list[Memory]] = []
    try:
        for tier in config.chain.tiers:
            factory = tiers.get(tier.name) or _default(tier.name, is_fallible=tier.fallible)
            found.append([])
            for slots, group in zip(config.slots_of(tier.name), config.groups, strict=True):
                found[-1].append(factory(slots, group.page_bytes))
    except BaseException:
        for memory in (memory for tier_memories in found for memory in tier_memories):
            memory.close()
        raise
    return found


def _default(name: str, *, is_fallible: bool) -> Factory:
    if not is_fallible:
        return HostPool
    if name == "disk":
        return DiskFile
    raise ConfigError(f"no memory is known for tier {name!r}: give tiers={{{name!r}: its class}}")


def check_memories(
    config: Config,
    memories: Sequence[Sequence[Memory]] | None,
    given: Sequence[Sequence[Memory]] | None,
) -> None:
    """Check that an engine's memories are those given, and what the configuration says."""
    if given is not None and given is not memories:
        raise ConfigError("give memories, or an engine that has them, not two that differ")
    if memories is None:
        return
    for tier in memories:
        for memory in tier:
            if not isinstance(memory, Memory):
                raise ConfigError(
                    f"{type(memory).__name__} is no memory: derive it from kvtier.tiers.Memory"
                )
    for facts, tier in zip(config.chain.tiers, memories, strict=False):
        for memory in tier if facts.durable else ():
            if type(memory).invalidate is Memory.invalidate:
                raise ConfigError(
                    f"tier {facts.name} is durable, and {type(memory).__name__} has no "
                    "invalidate(): after a reset it would give old pages back"
                )
    shapes = [[tuple(memory.shape) for memory in tier] for tier in memories]
    if shapes != _shapes(config):
        raise ConfigError(
            f"memories have (slots, bytes) {shapes}, by tier and group; "
            f"the cache asks for {_shapes(config)}"
        )


def invalidate(
    config: Config,
    memories: Sequence[Sequence[Memory]] | None,
    pools: Sequence[Sequence[SlotPool]],
) -> None:
    """Let fallible tiers forget all but the slots in use; all are told, whatever one raises."""
    failed: list[TierFailed] = []
    for tier, facts in enumerate(config.chain.tiers if memories is not None else ()):
        for group, memory in enumerate(memories[tier] if memories and facts.fallible else ()):
            try:
                memory.invalidate(pools[tier][group].owned())
            except Exception as error:  # noqa: BLE001 - a tier may raise anything
                failed.append(TierFailed(facts.name, "invalidate", repr(error)))
    if failed:
        raise failed[0]


def _shapes(config: Config) -> list[list[tuple[int, int]]]:
    pages = [group.page_bytes for group in config.groups]
    tiers = config.chain.tiers
    return [list(zip(config.slots_of(tier.name), pages, strict=True)) for tier in tiers]
