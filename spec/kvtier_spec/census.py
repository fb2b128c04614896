"""Count every reachable world within bounds, fast, from the compiled table.

The lint proves that each row balances, for any number of pages and slots. So slots need no names
here: a world is a multiset of page configurations, from which the owned slots follow, and per tier
the number of quarantined and retiring slots. For one multiset of pages the reachable pools are kept
as the bits of one integer; an event of a page acts on all of them at once (a mask for "a slot is
free there", a shift for "one more in quarantine"). Work goes on until no multiset gains a bit.

For every multiset one concrete world is built and all world invariants are asked; that the pools
fit is asked of every world. Step invariants speak of one page (and its twin) at a time:
`explore.py` asks them on every edge of smaller worlds.

The counts equal those of `explore.py`, which names every slot and executes every verb; a test holds
both against each other where the slow one can follow. An edge is a (world, page or slot, event).

Twins stand with the page of their key: an item is a configuration and its number of twins. A key
whose page is gone is the item `ORPHAN` with twins only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from kvtier_spec import states
from kvtier_spec.cases import Needs
from kvtier_spec.chain import Chain
from kvtier_spec.invariants import in_state
from kvtier_spec.machine import Row, rows
from kvtier_spec.states import ABSENT, GPU, State
from kvtier_spec.vocabulary import Phase, SlotState
from kvtier_spec.world import Bounds, Page, Spec, World

Config = tuple[State, int, int]
"""A page's state, pins and holds."""
Item = tuple[Config | None, int]
"""A configuration (None: an orphaned key) and the number of its twins."""
Pages = tuple[int, ...]
"""Item numbers, sorted."""

NOTHING: Config = (ABSENT, 0, 0)
_TWIN = State(Phase.TWIN, frozenset({GPU}))
_NIBBLE = 4
"""Bits for the owned slots of a tier, packed into one integer: at most 15 slots a tier."""


@dataclass(slots=True)
class Count:
    """Worlds and edges that can be reached, and the (state, event) rows that fired."""

    states: int = 0
    edges: int = 0
    fired: set[tuple[str, str]] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Change:
    """What one event does to one item: the items it becomes, its takes, its quarantine."""

    label: tuple[str, str]
    items: tuple[int, ...]
    takes: tuple[int, ...] = ()
    quarantines: int | None = None
    ways: int = 1


class Pools:
    """Sets of pools as integers: one bit for each way to have slots quarantined and retiring."""

    def __init__(self, tiers: int, slots_each: int, quarantined: int) -> None:
        self.tiers, self.slots = tiers, slots_each
        self.options = [
            (q, r)
            for q in range(quarantined + 1)
            for r in range(slots_each + 1)
            if q + r <= slots_each
        ]
        self.number = {option: k for k, option in enumerate(self.options)}
        combos = list(product(range(len(self.options)), repeat=tiers))
        self.radix = [len(self.options) ** (tiers - 1 - tier) for tier in range(tiers)]
        self.select = [
            [
                sum(1 << i for i, combo in enumerate(combos) if combo[tier] == k)
                for k in range(len(self.options))
            ]
            for tier in range(tiers)
        ]

    def free(self, tier: int, owned: int, count: int = 1) -> int:
        """Mask the pools that have so many slots free on a tier, given those owned."""
        return sum(
            self.select[tier][k]
            for k, (q, r) in enumerate(self.options)
            if owned + q + r + count <= self.slots
        )

    def shift(self, bits: int, tier: int, dq: int, dr: int) -> tuple[int, int]:
        """Move pools by so many quarantined and retiring slots: (those that can, the result)."""
        able = result = 0
        for k, (q, r) in enumerate(self.options):
            target = self.number.get((q + dq, r + dr))
            part = bits & self.select[tier][k]
            if target is None or not part:
                continue
            able |= part
            by = (target - k) * self.radix[tier]
            result |= part << by if by >= 0 else part >> -by
        return able, result


class Census:
    """One count; `run` does it."""

    def __init__(self, chain: Chain, pages: int, slots_each: int, bounds: Bounds) -> None:
        self.chain, self.size, self.bounds = chain, pages, bounds
        assert slots_each < 1 << _NIBBLE, f"{slots_each} slots a tier are more than a nibble counts"
        self.pools = Pools(len(chain), slots_each, bounds.quarantined)
        self.free = [
            [self.pools.free(tier, owned) for owned in range(slots_each + 1)]
            for tier in range(len(chain))
        ]
        self.fits = [
            [self.pools.free(tier, owned, 0) for owned in range(slots_each + 1)]
            for tier in range(len(chain))
        ]
        self.by_state: dict[State, list[Row]] = {}
        for row in rows(chain):
            self.by_state.setdefault(row.before, []).append(row)
        self.spec = Spec(chain)
        self.checked: set[Pages] = set()
        self.items: list[Item] = []
        self.numbers: dict[Item, int] = {}
        self.owned: list[int] = []
        self.changes: dict[int, list[Change]] = {}
        self.found = Count()

    def run(self) -> Count:
        """Reach everything that can be reached from absent pages and free slots."""
        first = (self._number((NOTHING, 0)),) * self.size
        seen: dict[Pages, int] = {first: 1}
        fresh: dict[Pages, int] = {first: 1}
        while fresh:
            pages, bits = fresh.popitem()
            for there, gained in self._successors(pages, bits):
                new = gained & ~seen.get(there, 0)
                if new:
                    self._check(there, new)
                    seen[there] = seen.get(there, 0) | new
                    fresh[there] = fresh.get(there, 0) | new
        self.found.states = sum(bits.bit_count() for bits in seen.values())
        return self.found

    def _number(self, item: Item) -> int:
        number = self.numbers.setdefault(item, len(self.items))
        if number == len(self.items):
            self.items.append(item)
            config, twins = item
            tiers = list(config[0].owned()) if config else []
            self.owned.append(sum(1 << _NIBBLE * t for t in [*tiers, *[GPU] * twins]))
        return number

    def _owned(self, pages: Pages, tier: int) -> int:
        return sum(self.owned[item] for item in pages) >> _NIBBLE * tier & (1 << _NIBBLE) - 1

    def _check(self, pages: Pages, bits: int) -> None:
        """Check all world invariants, once a multiset of pages, and the pools of each world."""
        for tier in range(len(self.chain)):
            if bits & ~self.fits[tier][self._owned(pages, tier)]:
                self.found.violations.append(f"I1: tier {tier} over its pool in {pages}")
        if pages not in self.checked:
            self.checked.add(pages)
            self.found.violations += map(str, in_state(self.spec, self.world(pages)))

    def world(self, pages: Pages) -> World:
        """Build one of the worlds that a multiset stands for: slots in order, the rest free."""
        made: list[Page] = []
        for key, number in enumerate(pages):
            config, twins = self.items[number]
            made += [self._page(config, key, made)] if config else []
            for _ in range(twins):
                made.append(self._page((_TWIN, 1, 0), key, made))
        pools = tuple(
            tuple(
                SlotState.OWNED if slot < self._owned(pages, tier) else SlotState.FREE
                for slot in range(self.pools.slots)
            )
            for tier in range(len(self.chain))
        )
        return World(tuple(made), pools)

    def _page(self, config: Config, key: int, others: list[Page]) -> Page:
        state, pins, holds = config
        tiers = range(len(self.chain))
        taken = [sum(other.slots[tier] is not None for other in others) for tier in tiers]
        return Page(
            slots=tuple(taken[tier] if tier in state.owned() else None for tier in tiers),
            good=tuple(tier in state.valid for tier in tiers),
            state=state,
            pins=pins,
            holds=holds,
            key=key if state.phase in (Phase.COMMITTED, Phase.TWIN) else None,
        )

    def _successors(self, pages: Pages, bits: int) -> Iterator[tuple[Pages, int]]:
        for tier in range(len(self.chain)):
            yield pages, self._slot_events(tier, bits, self._owned(pages, tier))
        for at, number in enumerate(pages):
            rest = pages[:at] + pages[at + 1 :]
            for change in self._changes(number):
                gained = self._apply(pages, bits, change)
                if gained:
                    yield tuple(sorted(rest + change.items)), gained
            yield from self._commits(number, rest, bits)

    def _apply(self, pages: Pages, bits: int, change: Change) -> int:
        for tier in change.takes:
            bits &= self.free[tier][self._owned(pages, tier)]
        after = bits
        if change.quarantines is not None:
            bits, after = self.pools.shift(bits, change.quarantines, 1, 0)
        if bits:
            self._edges(bits, change)
        return after

    def _edges(self, bits: int, change: Change) -> None:
        self.found.edges += bits.bit_count() * change.ways
        self.found.fired.add(change.label)

    def _slot_events(self, tier: int, bits: int, owned: int) -> int:
        free = bits & self.free[tier][owned]
        gained = 0
        for able, dq, dr in ((free, 0, 1), (free, 1, 0), (bits, -1, 0), (bits, 0, -1)):
            moved, result = self.pools.shift(able, tier, dq, dr)
            self.found.edges += moved.bit_count()
            gained |= result
        return gained

    def _commits(self, number: int, rest: Pages, bits: int) -> Iterator[tuple[Pages, int]]:
        """Commit an open page under a key that another item carries: a twin, or its new page."""
        config, _ = self.items[number]
        if config is None or config[0].phase is not Phase.OPEN:
            return
        for row, after in self._rows(config):
            if row.rule.label not in ("commit", "commit twin"):
                continue
            for at, other in enumerate(rest):
                becomes = self._keyed(row, after, self.items[other])
                if becomes is not None:
                    self._edges(bits, Change(self._label(row), ()))
                    left = rest[:at] + rest[at + 1 :]
                    yield tuple(sorted((*left, self._number(becomes)))), bits

    def _keyed(self, row: Row, after: Config, other: Item) -> Item | None:
        config, twins = other
        if row.rule.label == "commit":
            return (after, twins) if config is None else None
        known = config is not None and config[0].phase is Phase.COMMITTED
        return (config, twins + 1) if known else None

    def _changes(self, number: int) -> list[Change]:
        if number not in self.changes:
            config, twins = self.items[number]
            found = [] if config is None else self._own_changes(config, twins)
            self.changes[number] = found + self._twin_changes(config, twins)
        return self.changes[number]

    def _own_changes(self, config: Config, twins: int) -> list[Change]:
        found = []
        for row, after in self._rows(config):
            if row.rule.label == "commit twin" or (row.rule.label == "join" and not twins):
                continue
            left = twins - (row.rule.label == "join")
            items = self._split(after, left) + self._absent(twins - left)
            found.append(
                Change(
                    self._label(row),
                    items,
                    takes=tuple(v.tier for v in row.verbs if v.op == "take"),
                    quarantines=next((v.tier for v in row.verbs if v.op == "quarantine"), None),
                    ways=twins if row.rule.label == "join" else 1,
                )
            )
        return found

    def _twin_changes(self, config: Config | None, twins: int) -> list[Change]:
        if not twins:
            return []
        kept = self._split(config, twins - 1) + self._absent(1)
        return [
            Change(self._label(row), kept, ways=twins)
            for row, after in self._rows((_TWIN, 1, 0))
            if after == NOTHING and row.rule.label != "joined"
        ]

    def _split(self, config: Config | None, twins: int) -> tuple[int, ...]:
        """Keep twins with their page while it is findable; else they are an orphaned key."""
        if config is not None and (config[0].phase is Phase.COMMITTED or not twins):
            return (self._number((config, twins)),)
        alone = () if config is None else (self._number((config, 0)),)
        return (*alone, self._number((None, twins))) if twins else alone

    def _absent(self, count: int) -> tuple[int, ...]:
        return (self._number((NOTHING, 0)),) * count

    def _rows(self, config: Config) -> list[tuple[Row, Config]]:
        """List the rows that a page's users allow, within the bounds, and what it becomes."""
        state, pins, holds = config
        found = []
        for row in self.by_state.get(state, ()):
            case = row.case(self.chain, pins, holds)
            asked = [guard for guard in row.conditions if guard.needs is Needs.USERS]
            after = (row.after, *row.rule.users(case))
            within = after[1] <= self.bounds.pins and after[2] <= self.bounds.holds
            if within and all(guard(case) for guard in asked):
                found.append((row, after))
        return found

    def _label(self, row: Row) -> tuple[str, str]:
        return states.name(self.chain, row.before), row.event


def count(chain: Chain, *, pages: int, slots_each: int, bounds: Bounds | None = None) -> Count:
    """Count the reachable worlds of so many pages and slots a tier.

    >>> from kvtier_spec.chain import GPU_HOST
    >>> count(GPU_HOST, pages=1, slots_each=1).states
    65
    """
    return Census(chain, pages, slots_each, bounds or Bounds()).run()


def never_fired(chain: Chain, found: Count) -> list[tuple[str, str]]:
    """List the rows of the table that no reachable world could fire: there should be none."""
    fired = found.fired | (
        {("twin@" + chain.tiers[GPU].name, "joined")} if _joined(found) else set()
    )
    table = {(states.name(chain, row.before), row.event) for row in rows(chain)}
    return sorted(table - fired)


def _joined(found: Count) -> bool:
    return any(event == "join" for _, event in found.fired)
