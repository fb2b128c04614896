"""Breadth-first search over all worlds within bounds, with shortest counterexamples.

Symmetry: pages are interchangeable, and so are the slots of a tier. The key of a world is therefore
the sorted multiset of its page configurations (twins grouped with the page of their key) and, per
tier, how many slots are quarantined and retiring. That is sound because every world is checked when
an edge leads to it, before its key is looked at (a double owner has the key of a legal world), and
among worlds that satisfy I1 and I6 the key is the world up to renaming.

The alternative, naming slots in a normal form, costs ten times as much and says no more.
For counts alone `census.py` is a thousand times faster and must agree exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kvtier_spec import invariants, lifecycle, states
from kvtier_spec.invariants import Violation
from kvtier_spec.vocabulary import SlotState
from kvtier_spec.world import Bounds, Event, Illegal, LedgerError, Page, Spec, World, events, start
from kvtier_spec.world import step as next_step

Key = tuple[object, ...]
Goal = Callable[[Spec, World], bool]


@dataclass(slots=True)
class Exploration:
    """What a search found: counts, rows fired, goals, and the shortest way to a violation."""

    states: int = 0
    edges: int = 0
    fired: set[tuple[str, str]] = field(default_factory=set)
    reached: dict[str, list[Event]] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    path: list[Event] = field(default_factory=list)


def key(world: World) -> Key:
    """Name a world up to renaming of pages, slots and keys."""
    classes: dict[int, list[tuple[object, ...]]] = {}
    alone: list[tuple[object, ...]] = []
    for page in world.pages:
        code = _code(page)
        (alone if page.key is None else classes.setdefault(page.key, [])).append(code)
    pools = tuple(
        (p.count(SlotState.QUARANTINED), p.count(SlotState.RETIRING)) for p in world.pools
    )
    return tuple(sorted(alone)), tuple(sorted(tuple(sorted(c)) for c in classes.values())), pools


def _code(page: Page) -> tuple[object, ...]:
    state = page.state
    return (state.phase, *sorted(state.valid), -1, *(state.flight or ()), -1, page.pins, page.holds)


class Search:
    """One breadth-first search; `run` does it."""

    def __init__(self, spec: Spec, bounds: Bounds, goals: Mapping[str, Goal]) -> None:
        self.spec, self.bounds, self.goals = spec, bounds, dict(goals)
        self.found = Exploration()
        self.parents: dict[Key, tuple[Key, Event] | None] = {}
        self.queue: deque[tuple[Key, World]] = deque()

    def run(self, first: World, *, stop_at_goals: bool = False) -> Exploration:
        """Visit every world that can be reached, until a violation or, if asked, all goals."""
        self._visit(key(first), first, None)
        while self.queue and not self.found.violations:
            if stop_at_goals and not self.goals:
                break
            here, world = self.queue.popleft()
            for event in events(self.spec, world):
                if self._try(here, world, event):
                    break
        self.found.states = len(self.parents)
        return self.found

    def _try(self, here: Key, world: World, event: Event) -> bool:
        """Take one edge; say whether it violates something."""
        try:
            after = next_step(self.spec, world, event).world
        except Illegal:
            return False
        except LedgerError as error:
            return self._violated(here, event, [Violation("I1", str(error))])
        broken = invariants.in_step(self.spec, world, event, after)
        broken += invariants.in_state(self.spec, after)
        if broken:
            return self._violated(here, event, broken)
        if self._within(after, event):
            self.found.edges += 1
            self._fire(world, event)
            there = key(after)
            if there not in self.parents:
                self._visit(there, after, (here, event))
        return False

    def _within(self, world: World, event: Event) -> bool:
        if any(p.count(SlotState.QUARANTINED) > self.bounds.quarantined for p in world.pools):
            return False
        page = world.pages[event.page]
        return page.pins <= self.bounds.pins and page.holds <= self.bounds.holds

    def _fire(self, world: World, event: Event) -> None:
        if event.page >= 0:
            state = states.name(self.spec.chain, world.pages[event.page].state)
            self.found.fired.add((state, label_of(self.spec, event)))
        if event.twin is not None:
            self.found.fired.add(("twin@" + self.spec.chain.tiers[0].name, "joined"))

    def _visit(self, here: Key, world: World, parent: tuple[Key, Event] | None) -> None:
        self.parents[here] = parent
        self.queue.append((here, world))
        for name in [n for n, goal in self.goals.items() if goal(self.spec, world)]:
            del self.goals[name]
            self.found.reached[name] = self._path(here)

    def _violated(self, here: Key, event: Event, broken: list[Violation]) -> bool:
        self.found.violations, self.found.path = broken, [*self._path(here), event]
        return True

    def _path(self, here: Key) -> list[Event]:
        path: list[Event] = []
        parent = self.parents[here]
        while parent is not None:
            path.append(parent[1])
            parent = self.parents[parent[0]]
        return path[::-1]


def label_of(spec: Spec, event: Event) -> str:
    """Name an event with its tiers, as the table does."""
    return lifecycle.label(spec.chain, spec.rule(event.rule), event.source, event.target)


def explore(
    spec: Spec,
    *,
    pages: int,
    slots: int | tuple[int, ...],
    bounds: Bounds | None = None,
    goals: Mapping[str, Goal] | None = None,
    stop_at_goals: bool = False,
) -> Exploration:
    """Search all worlds of so many pages and slots (of each tier, or one number for all).

    >>> from kvtier_spec.chain import GPU_HOST
    >>> explore(Spec(GPU_HOST), pages=1, slots=1).violations
    []
    """
    search = Search(spec, bounds or Bounds(), goals or {})
    each = (slots,) * len(spec.chain) if isinstance(slots, int) else slots
    return search.run(start(spec.chain, pages, each), stop_at_goals=stop_at_goals)
