"""Small worlds of the spec, exhaustively: exact counts, invariants, guards, goals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtier_spec import (
    GPU_HOST,
    GPU_HOST_DISK,
    GPU_HOST_DISK_REMOTE,
    Chain,
    census,
    experiments,
    goals,
)
from kvtier_spec.explore import explore
from kvtier_spec.lifecycle import Users
from kvtier_spec.world import Bounds, Illegal, Spec, events, start, step

COUNTS = [
    (GPU_HOST, 2, 2, 1_846, 18_341),
    (GPU_HOST_DISK, 2, 2, 45_026, 588_003),
    (GPU_HOST_DISK_REMOTE, 2, 2, 1_088_429, 17_771_667),
    (GPU_HOST_DISK, 3, 2, 188_401, 2_820_114),
]


@pytest.mark.parametrize(("chain", "pages", "slots", "worlds", "edges"), COUNTS)
def test_the_exact_number_of_worlds(
    chain: Chain, pages: int, slots: int, worlds: int, edges: int
) -> None:
    """A change of behaviour changes these numbers, and a person must look."""
    found = census.count(chain, pages=pages, slots_each=slots)

    assert (found.states, found.edges) == (worlds, edges)
    assert found.violations == []
    assert census.never_fired(chain, found) == []


@pytest.mark.parametrize(
    ("chain", "pages", "slots"),
    [
        (GPU_HOST, 1, 1),
        (GPU_HOST, 2, 2),
        (GPU_HOST, 3, 1),
        (GPU_HOST_DISK, 1, 1),
        (GPU_HOST_DISK, 2, 1),
    ],
)
def test_the_census_counts_what_the_explorer_visits(chain: Chain, pages: int, slots: int) -> None:
    """The fast count and the slow search with slot identities agree exactly."""
    fast = census.count(chain, pages=pages, slots_each=slots)
    slow = explore(Spec(chain), pages=pages, slots=slots)

    assert slow.violations == []
    assert (fast.states, fast.edges) == (slow.states, slow.edges)


@pytest.mark.parametrize("bounds", [Bounds(pins=2), Bounds(holds=2), Bounds(quarantined=2)])
def test_the_census_and_the_explorer_agree_under_other_bounds(bounds: Bounds) -> None:
    """The two counts share nothing of how they treat the bounds."""
    fast = census.count(GPU_HOST, pages=2, slots_each=2, bounds=bounds)
    slow = explore(Spec(GPU_HOST), pages=2, slots=2, bounds=bounds)

    assert slow.violations == []
    assert (fast.states, fast.edges) == (slow.states, slow.edges)


@pytest.mark.parametrize(("rule", "guard"), list(experiments.guards()))
def test_every_guard_is_needed_or_its_silence_explained(rule: str, guard: str) -> None:
    """Without a guard something breaks, by a shortest path; or the list says why nothing can."""
    found = experiments.missing(rule, guard)

    if (rule, guard) in experiments.SILENT:
        assert not found.violations
    else:
        assert found.violations
        assert found.path


def test_silent_guards_exist() -> None:
    """The list of silent guards names guards of the table."""
    assert set(experiments.SILENT) <= set(experiments.guards())


@pytest.mark.parametrize("chain", [GPU_HOST, GPU_HOST_DISK])
def test_every_goal_is_reached(chain: Chain) -> None:
    """The interesting places can be reached, or a vacuous model would pass everything."""
    wanted = goals.goals(chain)
    slots = (2, 2, 1)[: len(chain)]

    found = explore(Spec(chain), pages=2, slots=slots, goals=wanted, stop_at_goals=True)

    assert set(found.reached) == set(wanted)


def test_a_refused_event_changes_nothing_and_names_its_guard() -> None:
    """The pure world is immutable; an illegal event says which guard it breaks."""
    spec = Spec(GPU_HOST)
    world = start(GPU_HOST, 1, (1, 1))
    opened = step(spec, world, next(e for e in events(spec, world) if e.rule == "open")).world

    with pytest.raises(Illegal, match="absent"):
        step(spec, opened, next(e for e in events(spec, world) if e.rule == "open"))

    assert world == start(GPU_HOST, 1, (1, 1))


def test_users_are_told_of_a_loss() -> None:
    """`lose` of the last replica of a page in use says whose users must be told."""
    spec = Spec(GPU_HOST)
    world = start(GPU_HOST, 1, (1, 1))
    opened = step(spec, world, next(e for e in events(spec, world) if e.rule == "open")).world
    fault = next(e for e in events(spec, opened) if e.rule == "lose" and e.fault)

    assert step(spec, opened, fault).told == 0


USERS_DAMAGE: list[tuple[str, Users]] = [
    ("lose", lambda _: (0, 0)),
    ("lose", lambda c: (0, c.holds if c.state.valid - {c.target} else 0)),
    ("copy", lambda c: (c.pins, c.holds + 1)),
    ("commit", lambda _: (0, 1)),
    ("open", lambda _: (0, 1)),
    ("join", lambda c: (c.pins, c.holds)),
    ("unpin", lambda c: (c.pins, max(0, c.holds - 1))),
    ("drop", lambda c: (c.pins, c.holds)),
]
"""Rules whose users are not what the event says."""


@pytest.mark.parametrize(("label", "users"), USERS_DAMAGE)
def test_damage_to_the_users_of_a_rule_is_seen(label: str, users: Users) -> None:
    """Pins and holds that come, go or change into one another are a violation, by a short path."""
    spec = Spec(GPU_HOST)
    rules = tuple(replace(r, users=users) if r.label == label else r for r in spec.rules)

    assert explore(replace(spec, rules=rules), pages=2, slots=(2, 1)).violations


def test_a_touched_slot_that_is_not_set_aside_is_seen() -> None:
    """A job that may still touch its target leaves it in quarantine."""
    spec = Spec(GPU_HOST_DISK)
    plain = spec.rule("fail").verbs
    rules = tuple(replace(r, verbs=plain) if r.label == "fail touched" else r for r in spec.rules)

    found = explore(replace(spec, rules=rules), pages=1, slots=1)

    assert [v.invariant for v in found.violations] == ["I12"]
