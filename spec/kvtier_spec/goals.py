"""Places that must be reachable: without them a vacuous model passes everything.

Each goal is a predicate over worlds; the explorer gives the shortest way to it. A goal that is not
reached within the bounds fails the check like a broken invariant does.
"""

from __future__ import annotations

from kvtier_spec.chain import Chain
from kvtier_spec.explore import Goal
from kvtier_spec.states import GPU
from kvtier_spec.vocabulary import Phase, SlotState
from kvtier_spec.world import Spec, World

HOST = 1


def _two_shadows_and_a_full_host(_: Spec, world: World) -> bool:
    shadowed = [p for p in world.pages if {GPU, HOST} <= p.state.valid]
    return len(shadowed) > 1 and SlotState.FREE not in world.pools[HOST]


def _reclaim_fires(_: Spec, world: World) -> bool:
    """A page on the gpu alone while the host has a page that came later, in its slot's place."""
    alone = any(p.state.valid == {GPU} and p.holds for p in world.pages)
    return alone and any(p.state.valid == {HOST} for p in world.pages)


def _twin_beside_its_page(_: Spec, world: World) -> bool:
    keys = {p.key for p in world.pages if p.state.phase is Phase.TWIN}
    return any(p.state.phase is Phase.COMMITTED and p.key in keys for p in world.pages)


def _open_page_suspended_on_host(_: Spec, world: World) -> bool:
    return any(p.state.phase is Phase.OPEN and HOST in p.state.valid for p in world.pages)


def _quarantined_beside_a_live_page(_: Spec, world: World) -> bool:
    live = any(p.state.valid for p in world.pages)
    return live and any(SlotState.QUARANTINED in pool for pool in world.pools)


def _recall_while_demoting(_: Spec, world: World) -> bool:
    return any(
        p.state.flight is not None and GPU in p.state.valid and p.state.flight[0] == HOST
        for p in world.pages
    )


def _doomed_beside_a_shadowed_page(_: Spec, world: World) -> bool:
    doomed = any(p.state.phase is Phase.DOOMED for p in world.pages)
    return doomed and any({GPU, HOST} <= p.state.valid for p in world.pages)


def _forgotten_beside_a_findable_page(_: Spec, world: World) -> bool:
    """A page from before a reset is suspended on the host, and another has come since."""
    old = any(p.state.phase is Phase.FORGOTTEN and p.state.valid == {HOST} for p in world.pages)
    return old and any(p.state.phase is Phase.COMMITTED for p in world.pages)


def _replica_on_every_tier(spec: Spec, world: World) -> bool:
    return any(len(p.state.valid) == len(spec.chain) for p in world.pages)


ALWAYS: dict[str, Goal] = {
    "two shadows and a full host": _two_shadows_and_a_full_host,
    "a page on the gpu alone beside a page on the host": _reclaim_fires,
    "a twin beside the page of its key": _twin_beside_its_page,
    "an open page suspended on the host": _open_page_suspended_on_host,
    "a quarantined slot beside a live page": _quarantined_beside_a_live_page,
    "a page forgotten by a reset beside one committed since": _forgotten_beside_a_findable_page,
    "a valid replica on every tier": _replica_on_every_tier,
}
WITH_FLIGHTS: dict[str, Goal] = {
    "a recall while its page is being demoted": _recall_while_demoting,
    "a doomed page beside a shadowed one": _doomed_beside_a_shadowed_page,
}


def goals(chain: Chain) -> dict[str, Goal]:
    """List the goals of a chain; flights add some."""
    has_flights = any(tier.fallible for tier in chain.tiers)
    return {**ALWAYS, **(WITH_FLIGHTS if has_flights else {})}
