"""The table as rows, as a `transitions` machine, and compiled to a dict.

`rows(chain)` evaluates every rule on every declared state: what the guards can decide from the
state alone becomes the presence of a row, and what they need to know besides (users, slots, keys,
fences) stays on the row as conditions.

`reference(chain)` is one shared `transitions.Machine` without registered models: any object with
`state`, `pins` and `holds` is fired through `fire(machine, page, event)`. It is the readable,
drawable reference and the oracle of the tests. Registering pages as models costs 14 kB and
quadratic time; this costs nothing a page. `compiled(chain)` is the same content as a dict, a
hundred times faster: the trace checker and the fuzzer use it, and a test says that both agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, cast

from transitions import EventData, Machine

from kvtier_spec import lifecycle, states
from kvtier_spec.cases import Case, Guard, Needs
from kvtier_spec.chain import Chain
from kvtier_spec.lifecycle import RULES, Rule, Verb
from kvtier_spec.states import State


@dataclass(frozen=True, slots=True)
class Row:
    """One transition of a page: event, from, to, what it moves, and the conditions left to ask."""

    event: str
    rule: Rule
    source: int
    target: int
    before: State
    after: State
    verbs: tuple[Verb, ...]
    conditions: tuple[Guard, ...]

    def case(self, chain: Chain, pins: int, holds: int) -> Case:
        """Build the case of this row for a page with so many users."""
        return Case(chain, self.before, self.source, self.target, pins, holds)


class HasState(Protocol):
    """What the reference machine fires: anything with a state's name and counts of users."""

    state: str
    pins: int
    holds: int


@lru_cache(maxsize=64)
def rows(chain: Chain, rules: tuple[Rule, ...] = RULES) -> tuple[Row, ...]:
    """List every transition that the state alone does not forbid."""
    return tuple(
        _row(chain, rule, source, target, state)
        for rule in rules
        for source, target in lifecycle.moves(chain, rule)
        for state in states.generate(chain)
        if _possible(rule, Case(chain, state, source, target))
    )


def _possible(rule: Rule, case: Case) -> bool:
    """Decide by the state alone."""
    return all(guard(case) for guard in rule.guards if guard.needs is Needs.STATE)


def _row(chain: Chain, rule: Rule, source: int, target: int, state: State) -> Row:
    case = Case(chain, state, source, target)
    return Row(
        event=lifecycle.label(chain, rule, source, target),
        rule=rule,
        source=source,
        target=target,
        before=state,
        after=rule.becomes(case),
        verbs=rule.verbs(case),
        conditions=tuple(guard for guard in rule.guards if guard.needs is not Needs.STATE),
    )


@lru_cache(maxsize=64)
def compiled(chain: Chain) -> dict[tuple[State, str], Row]:
    """Compile the table: (state, event) -> row. What is not in it is illegal."""
    return {(row.before, row.event): row for row in rows(chain)}


@lru_cache(maxsize=16)
def reference(chain: Chain) -> Machine:
    """Build the shared machine; its events are the table's, its conditions the guards on users."""
    machine = Machine(
        model=None,
        states=[states.name(chain, state) for state in states.generate(chain)],
        initial="absent",
        auto_transitions=False,
        send_event=True,
    )
    for row in rows(chain):
        machine.add_transition(
            row.event,
            states.name(chain, row.before),
            states.name(chain, row.after),
            conditions=[_asked(chain, row, guard) for guard in row.conditions],
            before=_counts(chain, row),
        )
    return machine


def _asked(chain: Chain, row: Row, guard: Guard) -> Callable[[EventData], bool]:
    def condition(data: EventData) -> bool:
        if guard.needs is Needs.WORLD:
            return True  # slots, keys and fences are the world's to judge
        page = cast("HasState", data.model)
        return guard(row.case(chain, page.pins, page.holds))

    condition.__name__ = guard.name
    return condition


def _counts(chain: Chain, row: Row) -> Callable[[EventData], None]:
    def before(data: EventData) -> None:
        page = cast("HasState", data.model)
        page.pins, page.holds = row.rule.users(row.case(chain, page.pins, page.holds))

    return before


def fire(machine: Machine, page: HasState, event: str) -> bool:
    """Fire an event on any object with a state; say whether the guards on users let it pass.

    Raises `transitions.MachineError` where the state has no such event.

    >>> from types import SimpleNamespace
    >>> from kvtier_spec.chain import GPU_HOST
    >>> page = SimpleNamespace(state="absent", pins=0, holds=0)
    >>> fire(reference(GPU_HOST), page, "open"), page.state, page.pins
    (True, 'open@gpu', 1)
    """
    return bool(machine.events[event].trigger(page))
