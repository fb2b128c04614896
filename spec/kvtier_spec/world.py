"""A pure world of pages and slots: `step(spec, world, event)` gives the next world or refuses.

The world keeps slot identities and, for each replica, whether it really holds the page's bytes.
Guards are judged first; then the rule's verbs are executed literally on slots while the page is
believed to be in the state that the rule says it becomes. Where the two columns of the table
disagree, the invariants see it.

One world is one page group: groups meet only in the planner, which asks for all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from kvtier_spec import lifecycle, slots
from kvtier_spec.cases import Case, Guard, Needs
from kvtier_spec.chain import Chain
from kvtier_spec.lifecycle import RULES, Rule, Verb
from kvtier_spec.states import ABSENT, GPU, State
from kvtier_spec.vocabulary import Kind, Phase, SlotState


@dataclass(frozen=True, eq=False)
class Spec:
    """A chain and the rules that hold on it (all of them, but for experiments)."""

    chain: Chain
    rules: tuple[Rule, ...] = RULES

    @cached_property
    def by_label(self) -> dict[str, Rule]:
        """The rules, by their labels."""
        return {rule.label: rule for rule in self.rules}

    def rule(self, label: str) -> Rule:
        """Find a rule by its label."""
        return self.by_label[label]

    def without(self, label: str, guard: str) -> Spec:
        """Give this spec with one guard of one rule removed."""
        rules = tuple(r.without(guard) if r.label == label else r for r in self.rules)
        return replace(self, rules=rules)


@dataclass(frozen=True, slots=True)
class Event:
    """One primitive event. `rule` names it; the other fields are those that the rule needs."""

    rule: str
    page: int = -1
    source: int = GPU
    target: int = GPU
    slot: int | None = None
    key: int | None = None
    twin: int | None = None
    fenced: bool = True
    fault: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page: state, users, key, and per tier its slot and whether that holds its bytes."""

    slots: tuple[int | None, ...]
    good: tuple[bool, ...]
    state: State = ABSENT
    pins: int = 0
    holds: int = 0
    key: int | None = None


@dataclass(frozen=True, slots=True)
class World:
    """All pages and, per tier, the state of every slot."""

    pages: tuple[Page, ...]
    pools: tuple[tuple[SlotState, ...], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The next world, and the page whose users must be told of a loss."""

    world: World
    told: int | None = None


class Illegal(Exception):
    """An event that a guard forbids."""

    def __init__(self, event: Event, guard: Guard, page: Page | None) -> None:
        super().__init__(f"{event}: guard '{guard.name}' does not hold for {page}")
        self.event, self.guard, self.page = event, guard, page


class LedgerError(Exception):
    """A verb that gives what the page does not own: a double release in the making."""


def start(chain: Chain, pages: int, slots: tuple[int, ...]) -> World:
    """Build a world of absent pages and free slots, so many in each tier.

    >>> from kvtier_spec.chain import GPU_HOST
    >>> len(start(GPU_HOST, pages=2, slots=(1, 3)).pools[1])
    3
    """
    nothing = Page(slots=(None,) * len(chain), good=(False,) * len(chain))
    return World((nothing,) * pages, tuple((SlotState.FREE,) * count for count in slots))


def case(spec: Spec, world: World, event: Event) -> Case:
    """Gather what the guards of a page event may look at."""
    page = world.pages[event.page]
    twin = world.pages[event.twin] if event.twin is not None else None
    slot = world.pools[event.target][event.slot] if event.slot is not None else None
    return Case(
        chain=spec.chain,
        state=page.state,
        source=event.source,
        target=event.target,
        pins=page.pins,
        holds=page.holds,
        slot=slot,
        fenced=event.fenced,
        fault=event.fault,
        key_known=finds(world, event.key) is not None,
        same_key=twin is not None and twin.state.phase is Phase.TWIN and twin.key == page.key,
    )


def finds(world: World, key: int | None) -> int | None:
    """Find the page under a key, as a lookup would."""
    for index, page in enumerate(world.pages):
        if key is not None and page.state.phase is Phase.COMMITTED and page.key == key:
            return index
    return None


def refusal(spec: Spec, world: World, event: Event) -> Guard | None:
    """Name the guard that forbids an event of a page, or None."""
    facts = case(spec, world, event)
    for guard in spec.rule(event.rule).guards:
        if not guard(facts):
            return guard
    return None


def step(spec: Spec, world: World, event: Event) -> Step:
    """Apply one event; raise Illegal where a guard does not hold, with the world unchanged."""
    if event.rule in slots.EVENTS:
        return Step(_slot_step(world, event))
    guard = refusal(spec, world, event)
    if guard is not None:
        raise Illegal(event, guard, world.pages[event.page])
    after = _apply(spec, world, event, spec.rule(event.rule))
    if event.twin is not None:
        after = _apply(spec, after, replace(event, page=event.twin, slot=None), spec.rule("joined"))
    lost = event.rule == "lose" and _users(after, event.page) < _users(world, event.page)
    return Step(after, event.page if lost else None)


def _users(world: World, page: int) -> int:
    return world.pages[page].pins + world.pages[page].holds


def _slot_step(world: World, event: Event) -> World:
    before, after = slots.EVENTS[Kind(event.rule)]
    pool = list(world.pools[event.target])
    if event.slot is None or pool[event.slot] is not before:
        raise Illegal(event, Guard(f"slot {before}", Needs.WORLD, bool), None)
    pool[event.slot] = after
    return _with_pool(world, event.target, tuple(pool))


def _with_pool(world: World, tier: int, pool: tuple[SlotState, ...]) -> World:
    return replace(world, pools=(*world.pools[:tier], pool, *world.pools[tier + 1 :]))


def _apply(spec: Spec, world: World, event: Event, rule: Rule) -> World:
    facts = case(spec, world, event)
    page = world.pages[event.page]
    for verb in rule.verbs(facts):
        world, page = _execute(world, page, event, verb)
    state, (pins, holds) = rule.becomes(facts), rule.users(facts)
    page = replace(page, state=state, pins=pins, holds=holds, key=_key(page, event, state))
    pages = (*world.pages[: event.page], page, *world.pages[event.page + 1 :])
    return replace(world, pages=pages)


def _key(page: Page, event: Event, state: State) -> int | None:
    if state.phase in (Phase.COMMITTED, Phase.TWIN):
        return page.key if event.key is None else event.key
    return None


def _execute(world: World, page: Page, event: Event, verb: Verb) -> tuple[World, Page]:
    tier = verb.tier
    if verb.op == "write":
        return world, _with_slot(page, tier, page.slots[tier], good=True)
    if verb.op == "copy":
        good = page.good[tier if verb.source is None else verb.source]
        return world, _with_slot(page, tier, page.slots[tier], good=good)
    if verb.op == "adopt":
        twin = world.pages[event.twin if event.twin is not None else event.page]
        good = twin.good[tier] and twin.key == page.key
        return world, _with_slot(page, tier, twin.slots[tier], good=good)
    if verb.op == "hand":
        return world, _with_slot(page, tier, None, good=False)
    return _exchange(world, page, event, verb)


def _exchange(world: World, page: Page, event: Event, verb: Verb) -> tuple[World, Page]:
    """Execute `take`, `give` or `quarantine`: the verbs that change the pool."""
    slot = event.slot if verb.op == "take" else page.slots[verb.tier]
    if slot is None:
        raise LedgerError(f"{event.rule}: page {event.page} {verb.op}s a slot that it does not own")
    pool = list(world.pools[verb.tier])
    pool[slot] = slots.VERBS[verb.op][1]
    kept = slot if verb.op == "take" else None
    world = _with_pool(world, verb.tier, tuple(pool))
    return world, _with_slot(page, verb.tier, kept, good=False)


def _with_slot(page: Page, tier: int, slot: int | None, *, good: bool) -> Page:
    return replace(
        page,
        slots=(*page.slots[:tier], slot, *page.slots[tier + 1 :]),
        good=(*page.good[:tier], good, *page.good[tier + 1 :]),
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """What keeps a world finite: users of a page, and quarantined slots of a tier."""

    pins: int = 1
    holds: int = 1
    quarantined: int = 1


@lru_cache(maxsize=1 << 14)
def possible(spec: Spec, state: State) -> tuple[tuple[Rule, int, int], ...]:
    """List the (rule, source, target) that a state alone does not forbid."""
    return tuple(
        (rule, source, target)
        for rule in spec.rules
        for source, target in lifecycle.moves(spec.chain, rule)
        if all(
            guard(Case(spec.chain, state, source, target))
            for guard in rule.guards
            if guard.needs is Needs.STATE
        )
    )


def events(spec: Spec, world: World) -> Iterator[Event]:
    """List the events to try, slots up to symmetry: one of each slot state is enough."""
    for tier, pool in enumerate(world.pools):
        for kind, (before, _) in slots.EVENTS.items():
            if before in pool:
                yield Event(kind, target=tier, slot=pool.index(before))
    for index, page in enumerate(world.pages):
        for rule, source, target in possible(spec, page.state):
            yield from _page_events(spec, world, Event(rule.label, index, source, target))


def _page_events(spec: Spec, world: World, event: Event) -> Iterator[Event]:
    if event.rule in ("open", "copy", "start"):
        pool = world.pools[event.target]
        yield from (replace(event, slot=pool.index(state)) for state in SlotState if state in pool)
    elif event.rule in ("commit", "commit twin"):
        keys = _keys(world)
        yield from (replace(event, key=k, fenced=f) for k in keys for f in (True, False))
    elif event.rule == "commit late":
        yield from (replace(event, fenced=f) for f in (True, False))
    elif event.rule == "join":
        twins = (i for i, p in enumerate(world.pages) if p.state.phase is Phase.TWIN)
        yield from (replace(event, twin=twin) for twin in twins if twin != event.page)
    elif event.rule == "lose" and not spec.chain.tiers[event.target].fallible:
        yield from (event, replace(event, fault=True))
    elif event.rule != "joined":
        yield event


def _keys(world: World) -> list[int]:
    """Every key in use and one fresh key: others are the same by symmetry."""
    used = sorted({page.key for page in world.pages if page.key is not None})
    fresh = next(key for key in range(len(used) + 1) if key not in used)
    return [*used, fresh]
