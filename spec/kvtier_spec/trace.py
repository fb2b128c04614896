"""The trace checker: it replays a journal through the table and rejects what the spec forbids.

T3, refinement: every journal of a runtime is a legal run of the spec. The runtime emits and the
spec judges; the two share names, never the transition function. Records name pages and slots, so
nothing has to be searched: one pass, a few dictionary look-ups an event.

The table is the compiled dict of `machine.py`; what the guards on users say is remembered for each
(row, pins, holds). Groups do not interact below the planner, so each has a world of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvtier_spec import invariants, lifecycle, slots, states
from kvtier_spec.cases import Case, Guard, Needs
from kvtier_spec.chain import Chain
from kvtier_spec.invariants import Snapshot, Violation
from kvtier_spec.lifecycle import RULES, Rule
from kvtier_spec.machine import Row, compiled
from kvtier_spec.records import Batch, Record
from kvtier_spec.states import ABSENT, State
from kvtier_spec.vocabulary import SLOT_KINDS, Kind, Phase, SlotState
from kvtier_spec.world import Page, Spec, World


class TraceError(Exception):
    """A journal that is no run of the spec: which event, of which page, against which guard."""

    def __init__(
        self, position: int, event: str, page: int | None, guard: str, detail: str
    ) -> None:
        who = "slot event" if page is None else f"page {page}"
        super().__init__(f"event {position} '{event}' of {who}: guard '{guard}' fails: {detail}")
        self.position, self.event, self.page, self.guard = position, event, page, guard


@dataclass(slots=True)
class _Held:
    """A page as the journal has it so far."""

    slots: list[int | None]
    state: State = ABSENT
    pins: int = 0
    holds: int = 0
    key: Hashable | None = None


@dataclass(slots=True)
class _GroupWorld:
    pools: list[list[SlotState]]
    pages: dict[int, _Held] = field(default_factory=dict)
    found: dict[Hashable, int] = field(default_factory=dict)


class Checker:
    """Follow a runtime's journal; `feed` it batches, ask `check` for the invariants.

    >>> from kvtier_spec.chain import GPU_HOST
    >>> checker = Checker(GPU_HOST, [(2, 2)])
    >>> checker.feed([Record(Kind.OPEN, [1], [0]), Record(Kind.DROP, [1])])
    >>> checker.feed([Record(Kind.DROP, [1])])
    Traceback (most recent call last):
    ...
    kvtier_spec.trace.TraceError: event 2 'drop' of page 1: guard 'has a valid replica' fails:
    absent
    """

    def __init__(self, chain: Chain, slots_each: Sequence[Sequence[int]]) -> None:
        """Start with free pools: `slots_each[group][tier]` slots."""
        self.chain = chain
        self.position = 0
        self._table = compiled(chain)
        self._memo: dict[tuple[int, int, int], tuple[Guard | None, int, int]] = {}
        self._rules = {rule.label: rule for rule in RULES}
        self._groups = [
            _GroupWorld([[SlotState.FREE] * count for count in counts]) for counts in slots_each
        ]

    def feed(self, batch: Batch) -> None:
        """Replay one batch; raise TraceError at its first illegal event."""
        for record in batch:
            self._refuse_malformed(record)
            group = self._groups[record.group]
            if record.kind in SLOT_KINDS:
                self._slot_events(group, record)
            else:
                self._page_events(group, record)

    def check(self, says: Iterable[Snapshot] = ()) -> list[Violation]:
        """Check the invariants of the world so far and, by group, of a runtime's snapshots."""
        spec = Spec(self.chain)
        found = [
            v for g in range(len(self._groups)) for v in invariants.in_state(spec, self.world(g))
        ]
        for group, snapshot in enumerate(says):
            order = self._order(group)
            mine = _renamed(snapshot, {page: index for index, page in enumerate(order)})
            found += invariants.in_audit(spec, self.world(group), mine)
        return found

    def quiescent(self) -> list[Violation]:
        """Check I13: nobody uses anything any more."""
        spec = Spec(self.chain)
        groups = range(len(self._groups))
        return [v for g in groups for v in invariants.quiescent(spec, self.world(g))]

    def world(self, group: int = 0) -> World:
        """Build the world that the journal describes, pages in the order of their ids."""
        held = self._groups[group].pages
        pages = tuple(_page(held[page]) for page in self._order(group))
        return World(pages, tuple(tuple(pool) for pool in self._groups[group].pools))

    def state_names(self, group: int = 0) -> dict[int, str]:
        """Name the state of every page that is not absent."""
        held = self._groups[group].pages
        return {page: states.name(self.chain, held[page].state) for page in self._order(group)}

    def _order(self, group: int) -> list[int]:
        return sorted(self._groups[group].pages)

    def _refuse_malformed(self, record: Record) -> None:
        """Refuse a record that cannot be read: arrays of other lengths, unknown tiers."""
        tiers = range(len(self.chain))
        size = len(record.pages)
        takes = record.kind in _TAKES
        wrong = (
            "no such group"
            if record.group not in range(len(self._groups))
            else "no such tier"
            if record.source not in tiers or record.target not in tiers
            else "one slot a page"
            if takes and len(record.slots) != size
            else "one key a page"
            if record.kind is Kind.COMMIT and len(record.keys) != size
            else "one twin a page"
            if record.kind is Kind.JOIN and len(record.twins) != size
            else ""
        )
        if wrong:
            page = record.pages[0] if size else None
            raise TraceError(self.position, record.kind, page, "well formed", wrong)

    def _slot_events(self, group: _GroupWorld, record: Record) -> None:
        before, after = slots.EVENTS[record.kind]
        pool = group.pools[record.target]
        for slot in record.slots:
            found = pool[slot] if 0 <= slot < len(pool) else "not there"
            if record.kind is Kind.GROW and slot == len(pool):
                pool.append(before)
                found = before
            if found is not before:
                detail = f"slot {slot} of {self.chain.tiers[record.target].name} is {found}"
                raise TraceError(self.position, record.kind, None, f"slot {before}", detail)
            pool[slot] = after
            self.position += 1

    def _page_events(self, group: _GroupWorld, record: Record) -> None:
        rule = self._rules[_rule_of(record)]
        event = lifecycle.label(self.chain, rule, record.source, record.target)
        blank = [None] * len(record.pages)
        taken = record.slots or blank
        keys = record.keys or blank
        twins = record.twins or blank
        for page, slot, key, twin in zip(record.pages, taken, keys, twins, strict=True):
            held = group.pages.get(page) or _Held([None] * len(self.chain))
            row = self._table.get((held.state, event))
            facts = _Facts(record, page, slot, key, twin)
            if row is None:
                raise self._refused(group, rule, event, held, facts)
            if record.is_eviction and record.target != min(held.state.valid):
                name = states.name(self.chain, held.state)
                raise TraceError(self.position, event, page, "the warmest replica", name)
            self._follow(group, row, held, facts)
            self.position += 1

    def _follow(self, group: _GroupWorld, row: Row, held: _Held, facts: _Facts) -> None:
        memo = (id(row), held.pins, held.holds)
        answer = self._memo.get(memo) or self._memo.setdefault(memo, self._users(row, held))
        failed, pins, holds = answer
        if failed is not None or not self._world_allows(group, row, held, facts):
            raise self._refused(group, row.rule, row.event, held, facts)
        for verb in row.verbs:
            self._execute(group, held, verb.op, verb.tier, facts)
        held.pins, held.holds = pins, holds
        self._settle(group, held, row.after, facts)

    def _users(self, row: Row, held: _Held) -> tuple[Guard | None, int, int]:
        case = row.case(self.chain, held.pins, held.holds)
        asked = (guard for guard in row.conditions if guard.needs is Needs.USERS)
        failed = next((guard for guard in asked if not guard(case)), None)
        return (failed, *row.rule.users(case))

    def _world_allows(self, group: _GroupWorld, row: Row, held: _Held, facts: _Facts) -> bool:
        asked = [guard for guard in row.conditions if guard.needs is Needs.WORLD]
        if not asked:
            return True
        case = self._case(group, held, facts)
        return all(guard(case) for guard in asked)

    def _case(self, group: _GroupWorld, held: _Held, facts: _Facts) -> Case:
        record, slot = facts.record, facts.slot
        pool = group.pools[record.target]
        twin = group.pages.get(facts.twin) if facts.twin is not None else None
        return Case(
            self.chain,
            held.state,
            record.source,
            record.target,
            held.pins,
            held.holds,
            slot=None if slot is None or not 0 <= slot < len(pool) else pool[slot],
            fenced=record.fence is not None,
            fault=record.is_fault,
            key_known=facts.key in group.found,
            same_key=twin is not None and twin.key == held.key and twin.state == _TWIN,
        )

    def _execute(self, group: _GroupWorld, held: _Held, op: str, tier: int, facts: _Facts) -> None:
        if op == "take" and facts.slot is not None:
            group.pools[tier][facts.slot] = SlotState.OWNED
            held.slots[tier] = facts.slot
        elif op in ("give", "quarantine"):
            slot = held.slots[tier]
            assert slot is not None, "the lint proves that rows give what they have"
            group.pools[tier][slot] = slots.VERBS[op][1]
            held.slots[tier] = None
        elif op == "adopt" and facts.twin is not None:
            twin = group.pages.pop(facts.twin)
            held.slots[tier] = twin.slots[tier]

    def _settle(self, group: _GroupWorld, held: _Held, after: State, facts: _Facts) -> None:
        """Enter the new state; keep the index of findable pages in step with it."""
        if facts.record.kind is Kind.COMMIT:
            held.key = facts.key
            if not (facts.record.is_private or facts.record.is_late):
                group.found[facts.key] = facts.page
        held.state = after
        if after.phase in _GONE and group.found.get(held.key) == facts.page:
            del group.found[held.key]
        if after == ABSENT:
            group.pages.pop(facts.page, None)
        else:
            group.pages[facts.page] = held

    def _refused(
        self, group: _GroupWorld, rule: Rule, event: str, held: _Held, facts: _Facts
    ) -> TraceError:
        case = self._case(group, held, facts)
        failed = next(
            (guard.name for guard in rule.guards if not guard(case)), "a row of the table"
        )
        name = states.name(self.chain, held.state)
        users = f", {held.pins} pins, {held.holds} holds" if held.state != ABSENT else ""
        slot = f", slot {facts.slot} {case.slot}" if facts.slot is not None else ""
        return TraceError(self.position, event, facts.page, failed, name + users + slot)


@dataclass(slots=True)
class _Facts:
    record: Record
    page: int
    slot: int | None
    key: Hashable | None
    twin: int | None


_TAKES = frozenset({Kind.OPEN, Kind.COPY, Kind.START})
_TWIN = State(Phase.TWIN, frozenset({states.GPU}))
_GONE = (Phase.ABSENT, Phase.DOOMED, Phase.FORGOTTEN)


def _rule_of(record: Record) -> str:
    if record.kind is Kind.COMMIT and (record.is_private or record.is_late):
        return "commit twin" if record.is_private else "commit late"
    if record.kind is Kind.FAIL and record.is_touched:
        return "fail touched"
    return record.kind


def _page(held: _Held) -> Page:
    good = tuple(tier in held.state.valid for tier in range(len(held.slots)))
    key: object = held.key
    return Page(tuple(held.slots), good, held.state, held.pins, held.holds, key)  # type: ignore[arg-type]


def _renamed(says: Snapshot, index: Mapping[int, int]) -> Snapshot:
    """Name a snapshot's pages by their place in the world; unknown pages become negative."""

    def place(page: int) -> int:
        return index.get(page, -1 - page)

    def sets(orders: tuple[frozenset[int], ...]) -> tuple[frozenset[int], ...]:
        return tuple(frozenset(map(place, order)) for order in orders)

    return replace(
        says,
        replicas={place(p): s for p, s in says.replicas.items()},
        pins={place(p): n for p, n in says.pins.items()},
        holds={place(p): n for p, n in says.holds.items()},
        evictable=sets(says.evictable),
        reclaimable=sets(says.reclaimable),
        found={key: place(p) for key, p in says.found.items()},
    )
