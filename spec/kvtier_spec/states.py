"""The states of a page, generated from the chain, and what a page in each of them owns.

A state says three things: the phase, the tiers with a valid replica, and the flight, if any.
`owned()` declares, independently of any event, which slots a page in that state lists; the lint
(`lint.py`) holds these declarations against what the events take and give, like two columns of a
ledger. Names are read off the state: `gpu+host` (shadowed), `host>disk` (in flight), `open@host`,
`doomed disk>gpu`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from kvtier_spec.chain import Chain
from kvtier_spec.vocabulary import Phase

GPU = 0
"""The warmest tier, the only writable one."""


@dataclass(frozen=True, slots=True)
class State:
    """Phase, valid replicas and flight of one page; users are counted beside it."""

    phase: Phase
    valid: frozenset[int] = frozenset()
    flight: tuple[int, int] | None = None

    def owned(self) -> frozenset[int]:
        """Declare the tiers in which the page (or its flight, when doomed) owns a slot."""
        if self.flight is None:
            return self.valid
        if self.phase is Phase.DOOMED:
            return frozenset(self.flight)
        return self.valid | {self.flight[1]}


ABSENT = State(Phase.ABSENT)


@lru_cache(maxsize=1 << 16)
def name(chain: Chain, state: State) -> str:
    """Name a state: tiers warm to cold, a flight written at its source.

    >>> from kvtier_spec.chain import GPU_HOST_DISK
    >>> name(GPU_HOST_DISK, State(Phase.COMMITTED, frozenset({0, 1}), (1, 2)))
    'gpu+host>disk'
    """
    if state.phase is Phase.ABSENT and not state.valid and state.flight is None:
        return "absent"
    parts = []
    for tier in sorted(state.valid | frozenset((state.flight or ())[:1])):
        flies = state.flight is not None and tier == state.flight[0]
        target = f">{chain.tiers[state.flight[1]].name}" if flies and state.flight else ""
        parts.append(chain.tiers[tier].name + target)
    return _PREFIX.get(state.phase, f"{state.phase}@") + "+".join(parts)


_SHARED = (Phase.COMMITTED, Phase.FORGOTTEN)
"""Phases in which a page may have many users, and replicas on any tiers."""
_PREFIX = {Phase.COMMITTED: "", Phase.DOOMED: "doomed "}


def flights(chain: Chain) -> tuple[tuple[int, int], ...]:
    """List the (source, target) pairs that need a flight; the writable tier starts none."""
    return tuple(
        (source, target)
        for source, target in chain.pairs()
        if not chain.is_eager(source, target) and not chain.tiers[source].writable
    )


@lru_cache(maxsize=64)
def generate(chain: Chain) -> tuple[State, ...]:
    """Declare every state a page may be in on this chain."""
    span = range(len(chain))
    held = [frozenset(c) for size in span for c in combinations(span, size + 1)]
    found = [ABSENT, State(Phase.TWIN, frozenset({GPU}))]
    found += [State(Phase.OPEN, frozenset({tier})) for tier in span]
    found += [State(phase, valid) for phase in _SHARED for valid in held]
    for source, target in flights(chain):
        flight = (source, target)
        found.append(State(Phase.OPEN, frozenset({source}), flight))
        found.append(State(Phase.DOOMED, frozenset(), flight))
        found += [
            State(phase, valid, flight)
            for phase in _SHARED
            for valid in held
            if source in valid and target not in valid
        ]
    return tuple(found)


@lru_cache(maxsize=64)
def declared(chain: Chain) -> frozenset[State]:
    """Give the declared states as a set."""
    return frozenset(generate(chain))
