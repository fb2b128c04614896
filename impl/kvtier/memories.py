"""The memories of a configuration: made on the host, or checked where the caller brings them."""

from __future__ import annotations

from collections.abc import Sequence

from kvtier.config import Config
from kvtier.errors import ConfigError
from kvtier.tiers import HostPool, Memory


def host_memories(config: Config) -> list[list[HostPool]]:
    """Make every tier and group in host memory, one standing for the gpu."""
    return [[HostPool(slots, size) for slots, size in tier] for tier in _shapes(config)]


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
    shapes = [[tuple(memory.shape) for memory in tier] for tier in memories]
    if shapes != _shapes(config):
        raise ConfigError(
            f"memories have (slots, bytes) {shapes}, by tier and group; "
            f"the cache asks for {_shapes(config)}"
        )


def _shapes(config: Config) -> list[list[tuple[int, int]]]:
    tiers = config.chain.tiers
    return [[(config.slots[t.name], group.page_bytes) for group in config.groups] for t in tiers]
