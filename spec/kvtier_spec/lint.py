"""Double-entry book-keeping over the table, for any number of pages and slots.

Each row must balance: the slots of the state before, plus those taken, less those given, are the
slots of the state after; and every replica that is called valid afterwards either was valid, or was
written, or received the bytes of a valid one. Ownership alone does not notice a deleted copy.
From the balance follows a place invariant: free(t) + sum over pages of owned(page, t) +
quarantined(t) + retiring(t) never changes, whatever the size of the world.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from kvtier_spec import states
from kvtier_spec.chain import Chain
from kvtier_spec.lifecycle import RULES, Rule
from kvtier_spec.machine import Row, rows
from kvtier_spec.states import ABSENT, State
from kvtier_spec.vocabulary import Phase

GAINS = {"take", "adopt"}
GIVES = {"give", "quarantine", "hand"}


def lint(chain: Chain, rules: tuple[Rule, ...] = RULES) -> list[str]:
    """Say what is wrong with the table, a sentence each; nothing is the good answer.

    >>> from kvtier_spec.chain import GPU_HOST
    >>> lint(GPU_HOST)
    []
    """
    table = rows(chain, rules)
    found = [
        f"{_name(chain, row)}: {problem}" for row in table for problem in _problems(chain, row)
    ]
    return [*found, *_doubles(chain, table), *_handovers(table), *_unreachable(chain, table)]


def _name(chain: Chain, row: Row) -> str:
    return f"{row.event} from {states.name(chain, row.before)}"


def _problems(chain: Chain, row: Row) -> Iterator[str]:
    if row.after not in states.declared(chain):
        yield f"leads to the undeclared state {row.after}"
    yield from _balance(row)
    yield from _content(row)
    if row.before.phase is Phase.COMMITTED and row.after.phase is Phase.OPEN:
        yield "makes a committed page writable"


def _balance(row: Row) -> Iterator[str]:
    held = set(row.before.owned())
    for verb in row.verbs:
        if verb.op in GAINS:
            if verb.tier in held:
                yield f"takes a slot on tier {verb.tier} over one that it has (a leak)"
            held.add(verb.tier)
        elif verb.op in GIVES:
            if verb.tier not in held:
                yield f"gives a slot on tier {verb.tier} that it has not (a double release)"
            held.discard(verb.tier)
    if held != row.after.owned():
        yield f"ends with slots on {sorted(held)}, its state declares {sorted(row.after.owned())}"


def _content(row: Row) -> Iterator[str]:
    good = set(row.before.valid)
    for verb in row.verbs:
        if verb.op in ("write", "adopt") or (verb.op == "copy" and verb.source in good):
            good.add(verb.tier)
        elif verb.op in ("take", *GIVES):
            good.discard(verb.tier)
    for tier in sorted(row.after.valid - good):
        yield f"calls tier {tier} valid, but nothing brought the bytes there"


def _doubles(chain: Chain, table: tuple[Row, ...]) -> list[str]:
    seen = Counter((row.before, row.event) for row in table)
    return [
        f"{event} from {states.name(chain, state)}: {count} rows for one event and state"
        for (state, event), count in seen.items()
        if count > 1
    ]


def _handovers(table: tuple[Row, ...]) -> list[str]:
    """What one page adopts in a join, its twin hands over in the same event."""
    adopted = {
        v.tier for row in table if row.rule.label == "join" for v in row.verbs if v.op == "adopt"
    }
    handed = {
        v.tier for row in table if row.rule.label == "joined" for v in row.verbs if v.op == "hand"
    }
    return [] if adopted == handed else [f"join adopts slots on {adopted}, joined hands {handed}"]


def _unreachable(chain: Chain, table: tuple[Row, ...]) -> list[str]:
    forth: dict[State, set[State]] = {}
    back: dict[State, set[State]] = {}
    for row in table:
        forth.setdefault(row.before, set()).add(row.after)
        back.setdefault(row.after, set()).add(row.before)
    there, home = _closure(forth), _closure(back)
    found = []
    for state in states.generate(chain):
        if state not in there:
            found.append(f"{states.name(chain, state)}: no way from absent")
        if state not in home:
            found.append(f"{states.name(chain, state)}: no way back to absent")
    return found


def _closure(edges: dict[State, set[State]]) -> set[State]:
    seen, queue = {ABSENT}, deque([ABSENT])
    while queue:
        for state in edges.get(queue.popleft(), set()) - seen:
            seen.add(state)
            queue.append(state)
    return seen
