"""The numbered invariants, each once, each a function that returns violations.

Three kinds of functions, by what they look at: `world` invariants hold in every state of the spec,
`step` invariants between a state, an event and the next state, and `audit` invariants compare what
the runtime says of itself (a `Snapshot`) with the world that its journal describes. An invariant
that needs more eyes has a function of several kinds. The numbers are those of the design and are
quoted in code, docs and tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kvtier_spec import states
from kvtier_spec.states import GPU
from kvtier_spec.vocabulary import Phase, SlotState
from kvtier_spec.world import Event, Page, Spec, World, finds

TITLES: dict[str, str] = {
    "I1": "partition: free + owned + quarantined + retiring = pool; an owned slot has one owner",
    "I2": "order: no two conflicting uses of a slot are unordered by fences",
    "I3": "queue truth: a replica is in its eviction order, its reclaim order, or neither",
    "I4": "pins: a pinned page has a valid gpu replica whose slot never changes",
    "I5": "holds: a held page has a valid replica, or its loss was declared to its holders",
    "I6": "clean: valid replicas hold the page's bytes; an open page has one replica",
    "I7": "availability: available(tier) is the most that the planner would grant now",
    "I8": "atomicity: a refused operation changes nothing; a failed one leaves a legal prefix",
    "I9": "as the policy says: what a full tier gives up is what its policy chose",
    "I10": "truth of hits: the longest valid prefix; a key finds one page",
    "I11": "three answers: granted, busy, or out of slots; never refused if a plan exists",
    "I12": "terminal: a flight ends once, landed or failed; nothing else fills a fallible tier",
    "I13": "quiescence: all closed and drained, no pin, hold, flight, ticket or quarantine",
    "I14": "accounts: the engine's byte counters equal the sums over the journal",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant: its number and what is wrong, in one sentence."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant} ({TITLES[self.invariant].split(':')[0]}): {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a runtime says of itself, in the spec's words; page ids are those of its journal."""

    pools: tuple[tuple[SlotState, ...], ...]
    replicas: Mapping[int, tuple[int | None, ...]]
    pins: Mapping[int, int]
    holds: Mapping[int, int]
    evictable: tuple[frozenset[int], ...]
    """Per tier, the pages in its eviction order."""
    reclaimable: tuple[frozenset[int], ...]
    """Per tier, the pages in its reclaim order."""
    found: Mapping[object, int] = field(default_factory=dict)
    """Key -> page, as lookups see it."""


# -------------------------------------------------------------------------------- world invariants


def partition(spec: Spec, world: World) -> Iterator[Violation]:
    """I1, in a state: ownership is a bijection and every page is in a declared state."""
    listed: Counter[tuple[int, int]] = Counter()
    declared = states.declared(spec.chain)
    for index, page in enumerate(world.pages):
        if page.state not in declared:
            yield Violation("I1", f"page {index} is in the undeclared state {page.state}")
        has = frozenset(tier for tier, slot in enumerate(page.slots) if slot is not None)
        if has != page.state.owned():
            yield Violation("I1", f"page {index} lists slots on {has}, its state {page.state}")
        listed.update((t, s) for t, s in enumerate(page.slots) if s is not None)
    for tier, pool in enumerate(world.pools):
        for slot, state in enumerate(pool):
            owners = listed[tier, slot]
            if owners != (state is SlotState.OWNED):
                yield Violation(
                    "I1", f"slot {slot} of tier {tier} is {state}, with {owners} owners"
                )


def pins(_: Spec, world: World) -> Iterator[Violation]:
    """I4, in a state: pinned means valid on the gpu."""
    for index, page in enumerate(world.pages):
        if page.pins > 0 and GPU not in page.state.valid:
            yield Violation("I4", f"page {index} is pinned without a gpu replica")


def holds(_: Spec, world: World) -> Iterator[Violation]:
    """I5, in a state: held means valid somewhere; a private page has its one user."""
    for index, page in enumerate(world.pages):
        users = page.pins + page.holds
        if page.pins < 0 or page.holds < 0:
            yield Violation("I5", f"page {index} is given up by users that it has not")
        if page.holds > 0 and not page.state.valid:
            yield Violation("I5", f"page {index} is held without a replica")
        if page.state.phase in (Phase.OPEN, Phase.TWIN) and not users:
            yield Violation("I5", f"private page {index} outlives its user")
        if page.state.phase in (Phase.OPEN, Phase.TWIN) and max(page.pins, page.holds) > 1:
            yield Violation("I5", f"private page {index} has several users")
        if page.state.phase is Phase.TWIN and page.holds:
            yield Violation("I5", f"twin {index} is held: it cannot leave the gpu")
        if page.state.phase in (Phase.ABSENT, Phase.DOOMED) and users:
            yield Violation("I5", f"page {index} is gone but has users")


def clean(_: Spec, world: World) -> Iterator[Violation]:
    """I6: what is called valid holds the bytes; open pages have one replica."""
    for index, page in enumerate(world.pages):
        for tier in page.state.valid:
            if not page.good[tier]:
                yield Violation("I6", f"page {index} is valid on tier {tier} but holds other bytes")
        if page.state.phase is Phase.OPEN and len(page.state.valid) != 1:
            yield Violation("I6", f"open page {index} has {len(page.state.valid)} valid replicas")


def one_page_a_key(_: Spec, world: World) -> Iterator[Violation]:
    """I10, in a state: a key finds at most one page."""
    keys = Counter(p.key for p in world.pages if p.state.phase is Phase.COMMITTED)
    for key, count in keys.items():
        if count > 1:
            yield Violation("I10", f"key {key} finds {count} pages")


# --------------------------------------------------------------------------------- step invariants


def pinned_slot_stays(_: Spec, before: World, event: Event, after: World) -> Iterator[Violation]:
    """I4, in a step: while pinned, a page keeps its gpu slot (a declared loss ends the pin)."""
    for index, (old, new) in enumerate(zip(before.pages, after.pages, strict=True)):
        if old.pins and new.pins and old.slots[GPU] != new.slots[GPU]:
            yield Violation("I4", f"page {index} changed its gpu slot while pinned ({event.rule})")


def users_come_and_go_by_name(
    spec: Spec, before: World, event: Event, after: World
) -> Iterator[Violation]:
    """I4 and I5, in a step: pins and holds change as the event is called, and of no other page."""
    for index, (old, new) in enumerate(zip(before.pages, after.pages, strict=True)):
        expected = (old.pins, old.holds)
        if index == event.page:
            expected = _users_after(event, old, new)
        elif index == event.twin:
            expected = (0, 0)
        if (new.pins, new.holds) != expected:
            yield Violation(
                "I5",
                f"{event.rule} leaves page {index} with {new.pins} pins and {new.holds} holds, "
                f"not {expected[0]} and {expected[1]}",
            )
    if event.rule == "lose" and not (spec.chain.tiers[event.target].fallible or event.fault):
        yield Violation("I5", f"page {event.page} loses a replica on a tier that cannot fail")
    if event.page >= 0:
        yield from _users_taken_along(event, before.pages[event.page])


def _users_after(event: Event, old: Page, new: Page) -> tuple[int, int]:
    """Say how many pins and holds a page has after an event, judged by the event's name alone."""
    pins, holds = old.pins, old.holds
    if event.rule in ("drop", "doom"):
        return 0, 0
    if event.rule == "lose":
        return (0 if event.target == GPU else pins), (holds if new.state.valid else 0)
    more_pins = {"open": 1, "pin": 1, "join": 1, "unpin": -1}.get(event.rule, 0)
    more_holds = {"hold": 1, "unhold": -1}.get(event.rule, 0)
    return pins + more_pins, holds + more_holds


def _users_taken_along(event: Event, old: Page) -> Iterator[Violation]:
    """A page that is dropped takes nobody along but the one user of a private page."""
    private = old.state.phase in (Phase.OPEN, Phase.TWIN)
    if event.rule in ("drop", "doom") and old.pins + old.holds > private:
        users = old.pins + old.holds
        yield Violation("I5", f"{event.rule} of page {event.page} takes {users} users with it")


def open_stays_writable(_: Spec, before: World, event: Event, after: World) -> Iterator[Violation]:
    """I6, in a step: a page is committed while its writer has it pinned, and moves unpinned."""
    if event.page < 0:
        return
    old, new = before.pages[event.page], after.pages[event.page]
    if event.rule.startswith("commit") and not old.pins:
        yield Violation("I6", f"page {event.page} is committed by nobody who could have written it")
    if event.rule.startswith("commit") and not event.fenced:
        yield Violation("I6", f"page {event.page} is findable before its last write is ordered")
    if old.state.phase is Phase.OPEN and old.pins and event.rule == "copy":
        yield Violation("I6", f"open page {event.page} is moved while it may be written")
    if old.state.phase in _WRITTEN and new.state.phase is Phase.OPEN:
        yield Violation("I6", f"committed page {event.page} became writable")
    if old.key is not None and new.key not in (old.key, None):
        yield Violation("I6", f"page {event.page} holds key {old.key} and is called {new.key}")


_WRITTEN = (Phase.COMMITTED, Phase.FORGOTTEN)


def commits_are_found(_: Spec, __: World, event: Event, after: World) -> Iterator[Violation]:
    """I10, in a step: once committed, a key finds a page; what was forgotten stays so."""
    if event.rule in ("commit", "commit twin") and finds(after, event.key) is None:
        yield Violation("I10", f"key {event.key} was committed and finds nothing")
    if event.rule in ("forget", "commit late") and finds(after, event.key) is not None:
        yield Violation("I10", f"{event.rule} leaves page {event.page} findable")


def flights_end_once(spec: Spec, before: World, event: Event, after: World) -> Iterator[Violation]:
    """I12, in a step: only `land` fills a fallible tier; only `land` and `fail` end a flight."""
    if event.page < 0:
        return
    old, new = before.pages[event.page], after.pages[event.page]
    ends = event.rule in ("land", "fail", "fail touched")
    flight = old.state.flight
    if flight and new.state.flight != flight and not ends:
        yield Violation("I12", f"{event.rule} ends the flight of page {event.page}")
    if flight and ends and new.state.flight is not None:
        yield Violation("I12", f"the flight of page {event.page} ends twice")
    if event.rule == "copy" and not spec.chain.is_eager(event.source, event.target):
        yield Violation("I12", f"page {event.page} is copied eagerly to or from a fallible tier")
    if event.rule == "start" and spec.chain.is_eager(event.source, event.target):
        yield Violation("I12", f"page {event.page} flies between infallible tiers")
    if event.rule == "start" and spec.chain.tiers[event.source].writable:
        yield Violation("I12", f"page {event.page} flies from the writable tier")
    if ends and flight is None:
        yield Violation("I12", f"page {event.page} ends a flight that it has not")
    if event.rule == "fail touched" and flight:
        slot = old.slots[flight[1]]
        if slot is None or after.pools[flight[1]][slot] is not SlotState.QUARANTINED:
            yield Violation("I12", f"a job may still touch slot {slot} of tier {flight[1]}")


# -------------------------------------------------------------------------------- audit invariants


def queue_truth(spec: Spec, world: World, says: Snapshot) -> Iterator[Violation]:
    """I3: the runtime's queues are what the states imply."""
    for index, page in enumerate(world.pages):
        for tier in range(len(spec.chain)):
            order = queue_of(spec, page, tier)
            yield from _queued(index, tier, order, says)


def queue_of(spec: Spec, page: Page, tier: int) -> str | None:
    """Derive where a replica stands: 'evict', 'reclaim' or neither (None).

    Neither: pinned, in flight, private and used, held with no way down *now*: with no colder
    replica, and with no eager copy to the tier below. So whatever stands in the eviction order of a
    tier behind the gpu can leave it at once, and the planner may count it.
    """
    state = page.state
    if tier not in state.valid or (state.flight and state.flight[0] == tier):
        return None
    primary = tier == min(state.valid)
    if not primary:
        return "reclaim"
    if page.pins or state.phase is Phase.TWIN:
        return None
    has_way = tier + 1 < len(spec.chain) and spec.chain.is_eager(tier, tier + 1)
    is_clean = len(state.valid) > 1
    return "evict" if not page.holds or has_way or is_clean else None


def _queued(page: int, tier: int, order: str | None, says: Snapshot) -> Iterator[Violation]:
    for name, queues in (("evict", says.evictable), ("reclaim", says.reclaimable)):
        is_in = page in queues[tier]
        if is_in != (order == name):
            verb = "is" if is_in else "is not"
            yield Violation("I3", f"page {page} {verb} in the {name} order of tier {tier}")


def snapshot_matches(spec: Spec, world: World, says: Snapshot) -> Iterator[Violation]:
    """I1, I4, I5 and I10 of the runtime: its slots, users and index are what its journal said."""
    if says.pools != world.pools:
        yield Violation("I1", f"slots are {says.pools}, the journal says {world.pools}")
    for index, page in enumerate(world.pages):
        mine = says.replicas.get(index, (None,) * len(spec.chain))
        if mine != page.slots:
            yield Violation("I1", f"page {index} has slots {mine}, the journal says {page.slots}")
        if says.pins.get(index, 0) != page.pins:
            yield Violation(
                "I4", f"page {index} has {says.pins.get(index, 0)} pins, not {page.pins}"
            )
        if says.holds.get(index, 0) != page.holds:
            yield Violation(
                "I5", f"page {index} has {says.holds.get(index, 0)} holds, not {page.holds}"
            )
        if page.state.phase is Phase.FORGOTTEN and not page.pins + page.holds:
            yield Violation("I5", f"forgotten page {index} outlives its users")
    found = {p.key: i for i, p in enumerate(world.pages) if p.state.phase is Phase.COMMITTED}
    if dict(says.found) != found:
        yield Violation("I10", f"lookups find {dict(says.found)}, the journal says {found}")


def quiescent(_: Spec, world: World) -> Iterator[Violation]:
    """I13: nobody uses anything and nothing is under way (asked for at the end of a run)."""
    for index, page in enumerate(world.pages):
        if page.pins or page.holds or page.state.flight:
            yield Violation("I13", f"page {index} still has users or a flight: {page}")
    for tier, pool in enumerate(world.pools):
        if SlotState.QUARANTINED in pool:
            yield Violation("I13", f"tier {tier} still has a quarantined slot")


WorldCheck = Callable[[Spec, World], Iterator[Violation]]
StepCheck = Callable[[Spec, World, Event, World], Iterator[Violation]]
AuditCheck = Callable[[Spec, World, Snapshot], Iterator[Violation]]

WORLD: dict[str, WorldCheck] = {
    "I1": partition,
    "I4": pins,
    "I5": holds,
    "I6": clean,
    "I10": one_page_a_key,
}
STEP: dict[str, StepCheck] = {
    "I4": pinned_slot_stays,
    "I5": users_come_and_go_by_name,
    "I6": open_stays_writable,
    "I10": commits_are_found,
    "I12": flights_end_once,
}
AUDIT: dict[str, AuditCheck] = {"I1": snapshot_matches, "I3": queue_truth}
ELSEWHERE: dict[str, str] = {
    "I2": "judged by the order detector on the uses and waits of an engine",
    "I7": "the planner against brute force in small worlds",
    "I8": "the stateful machine compares the cache before and after a refused or failed call",
    "I9": "the stateful machine compares victims with the policy's own choice",
    "I11": "the stateful machine and the planner's brute force",
    "I13": "asked for at the end of a run (`quiescent`), when nothing may be left",
    "I14": "the stateful machine sums the journal",
}
"""Invariants that need eyes outside a world, and whose eyes these are."""


def in_state(spec: Spec, world: World) -> list[Violation]:
    """Check all world invariants."""
    return [v for check in WORLD.values() for v in check(spec, world)]


def in_step(spec: Spec, before: World, event: Event, after: World) -> list[Violation]:
    """Check all step invariants."""
    return [v for check in STEP.values() for v in check(spec, before, event, after)]


def in_audit(spec: Spec, world: World, says: Snapshot) -> list[Violation]:
    """Check all audit invariants."""
    return [v for check in AUDIT.values() for v in check(spec, world, says)]
