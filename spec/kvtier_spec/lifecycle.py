"""THE table: every event of a page, written once, as guards, outcome and verbs.

A page is a set of replicas. Exclusive paging, inclusive host tiers, write-through, disk shadows and
further tiers are policies over these few events. Each rule says the same thing twice, on purpose:
`becomes` says what state the page is in afterwards, and the verbs say, literally, what is taken,
given and copied. The lint demands that both columns balance, content included, and the world
executes the verbs while it believes the outcome, so that a wrong rule breaks an invariant.

Open pages have one replica: a copy of one is a move (its source is given in the same event), for a
stale copy must never survive a write. Private pages (open, twin) have one user and leave with it:
their last user goes by `drop` or `doom`, never by `unpin` or `unhold`.

A reset forgets: `forget` takes a page's key away and leaves all else, so that its users go on with
it; `commit late` is the commit of a sequence from before the reset, which nobody may find.

Everything else is derived from `RULES`: the `transitions` machine, the compiled dict of the trace
checker and the fuzzer, the explorer, the census, the pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kvtier_spec import cases as g
from kvtier_spec.cases import Case, Guard
from kvtier_spec.chain import Chain
from kvtier_spec.states import ABSENT, GPU, State
from kvtier_spec.vocabulary import Kind, Phase


@dataclass(frozen=True, slots=True)
class Verb:
    """One entry of the ledger: `take`, `give`, `quarantine`, `write`, `copy`, `adopt` or `hand`.

    `take` gets a free slot (its bytes are junk), `give` returns one, `quarantine` puts it aside,
    `write` is the owner filling it, `copy` moves bytes from `source`; `adopt` and `hand` are the
    two sides of a slot that changes pages.
    """

    op: str
    tier: int
    source: int | None = None


Users = Callable[[Case], tuple[int, int]]
"""Pins and holds afterwards."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of event: when it may happen, what the page becomes, what moves."""

    label: str
    kind: Kind
    guards: tuple[Guard, ...]
    becomes: Callable[[Case], State]
    verbs: Callable[[Case], tuple[Verb, ...]]
    users: Users = lambda c: (c.pins, c.holds)
    tiers: str = ""
    """Which tiers the event names: '' none, 't' one, 'st' a source and a target."""

    def without(self, guard: str) -> Rule:
        """Give the rule with one guard removed (for experiments)."""
        return replace(self, guards=tuple(x for x in self.guards if x.name != guard))


def _gain(case: Case, tier: int) -> State:
    return replace(case.state, valid=case.state.valid | {tier})


def _copied(case: Case) -> State:
    if case.state.phase is Phase.OPEN:
        return replace(case.state, valid=frozenset({case.target}))
    return _gain(case, case.target)


def _copies(case: Case) -> tuple[Verb, ...]:
    verbs = (Verb("take", case.target), Verb("copy", case.target, case.source))
    moves = case.state.phase is Phase.OPEN
    return (*verbs, Verb("give", case.source)) if moves else verbs


def _flight(case: Case) -> tuple[int, int]:
    return case.state.flight or (case.source, case.target)


def _landed(case: Case) -> State:
    target = _flight(case)[1]
    if case.state.phase is Phase.DOOMED:
        return ABSENT
    if case.state.phase is Phase.OPEN:
        return State(Phase.OPEN, frozenset({target}))
    return replace(_gain(case, target), flight=None)


def _lands(case: Case) -> tuple[Verb, ...]:
    source, target = _flight(case)
    if case.state.phase is Phase.DOOMED:
        return Verb("give", source), Verb("give", target)
    arrives = Verb("copy", target, source)
    return (arrives, Verb("give", source)) if case.state.phase is Phase.OPEN else (arrives,)


def _failed(case: Case) -> State:
    return ABSENT if case.state.phase is Phase.DOOMED else replace(case.state, flight=None)


def _fails(back: str) -> Callable[[Case], tuple[Verb, ...]]:
    def verbs(case: Case) -> tuple[Verb, ...]:
        source, target = _flight(case)
        doomed = case.state.phase is Phase.DOOMED
        return (Verb(back, target), Verb("give", source)) if doomed else (Verb(back, target),)

    return verbs


def _lost(case: Case) -> State:
    left = case.state.valid - {case.target}
    return replace(case.state, valid=left) if left else ABSENT


def _told(case: Case) -> tuple[int, int]:
    """A pin goes with the gpu replica, a hold with the last one: their owners are told."""
    left = case.state.valid - {case.target}
    return (0 if case.target == GPU else case.pins, case.holds if left else 0)


def _gives_all(case: Case) -> tuple[Verb, ...]:
    kept = case.state.flight or ()
    return tuple(Verb("give", tier) for tier in sorted(case.state.owned() - set(kept)))


def _nothing(_: Case) -> tuple[Verb, ...]:
    return ()


def _same(case: Case) -> State:
    return case.state


def _no_users(_: Case) -> tuple[int, int]:
    return 0, 0


_OPENED = State(Phase.OPEN, frozenset({GPU}))


def _gives(case: Case) -> tuple[Verb, ...]:
    return (Verb("give", case.target),)


RULES: tuple[Rule, ...] = (
    Rule(
        "open",
        Kind.OPEN,
        (g.is_absent, g.slot_free),
        lambda _: _OPENED,
        lambda _: (Verb("take", GPU), Verb("write", GPU)),
        users=lambda _: (1, 0),
    ),
    Rule(
        "commit",
        Kind.COMMIT,
        (g.is_open, g.valid_on_gpu, g.pinned, g.fenced, g.key_new),
        lambda c: replace(c.state, phase=Phase.COMMITTED),
        _nothing,
    ),
    Rule(
        "commit twin",
        Kind.COMMIT,
        (g.is_open, g.valid_on_gpu, g.pinned, g.unheld, g.fenced, g.key_known),
        lambda c: replace(c.state, phase=Phase.TWIN),
        _nothing,
    ),
    Rule(
        "commit late",
        Kind.COMMIT,
        (g.is_open, g.valid_on_gpu, g.pinned, g.fenced),
        lambda c: replace(c.state, phase=Phase.FORGOTTEN),
        _nothing,
    ),
    Rule(
        "forget",
        Kind.FORGET,
        (g.is_committed,),
        lambda c: replace(c.state, phase=Phase.FORGOTTEN),
        _nothing,
    ),
    Rule(
        "join",
        Kind.JOIN,
        (g.is_committed, g.none_on_gpu, g.no_flight_into_gpu, g.same_key),
        lambda c: _gain(c, GPU),
        lambda _: (Verb("adopt", GPU),),
        users=lambda c: (c.pins + 1, c.holds),
    ),
    Rule(
        "joined",
        Kind.JOIN,
        (g.is_twin,),
        lambda _: ABSENT,
        lambda _: (Verb("hand", GPU),),
        users=_no_users,
    ),
    Rule(
        "pin",
        Kind.PIN,
        (g.is_live, g.valid_on_gpu, g.room_for_pin),
        _same,
        _nothing,
        users=lambda c: (c.pins + 1, c.holds),
    ),
    Rule(
        "unpin",
        Kind.UNPIN,
        (g.is_live, g.valid_on_gpu, g.pinned, g.keeps_a_user),
        _same,
        _nothing,
        users=lambda c: (c.pins - 1, c.holds),
    ),
    Rule(
        "hold",
        Kind.HOLD,
        (g.is_live, g.open_on_gpu, g.room_for_hold),
        _same,
        _nothing,
        users=lambda c: (c.pins, c.holds + 1),
    ),
    Rule(
        "unhold",
        Kind.UNHOLD,
        (g.is_live, g.open_on_gpu, g.held, g.keeps_a_user),
        _same,
        _nothing,
        users=lambda c: (c.pins, c.holds - 1),
    ),
    Rule(
        "copy",
        Kind.COPY,
        (
            g.is_live,
            g.both_infallible,
            g.valid_on_source,
            g.none_on_target,
            g.open_not_in_flight,
            g.open_unpinned,
            g.slot_free,
        ),
        _copied,
        _copies,
        tiers="st",
    ),
    Rule(
        "start",
        Kind.START,
        (
            g.is_live,
            g.one_fallible,
            g.not_from_writable,
            g.valid_on_source,
            g.none_on_target,
            g.no_flight,
            g.slot_free,
        ),
        lambda c: replace(c.state, flight=(c.source, c.target)),
        lambda c: (Verb("take", c.target),),
        tiers="st",
    ),
    Rule("land", Kind.LAND, (g.in_flight,), _landed, _lands),
    Rule("fail", Kind.FAIL, (g.in_flight,), _failed, _fails("give")),
    Rule("fail touched", Kind.FAIL, (g.in_flight,), _failed, _fails("quarantine")),
    Rule(
        "lose",
        Kind.LOSE,
        (g.valid_on_target, g.not_flight_source, g.fallible_or_fault),
        _lost,
        _gives,
        users=_told,
        tiers="t",
    ),
    Rule(
        "release",
        Kind.RELEASE,
        (
            g.is_written,
            g.valid_on_target,
            g.another_valid,
            g.not_flight_source,
            g.unpinned_if_gpu,
        ),
        lambda c: replace(c.state, valid=c.state.valid - {c.target}),
        _gives,
        tiers="t",
    ),
    Rule(
        "drop",
        Kind.DROP,
        (g.is_readable, g.no_flight, g.unused),
        lambda _: ABSENT,
        _gives_all,
        users=_no_users,
    ),
    Rule(
        "doom",
        Kind.DOOM,
        (g.is_live, g.in_flight, g.unused),
        lambda c: State(Phase.DOOMED, frozenset(), c.state.flight),
        _gives_all,
        users=_no_users,
    ),
)


def moves(chain: Chain, rule: Rule) -> Iterator[tuple[int, int]]:
    """List the (source, target) tiers that an event of this rule may name."""
    if rule.tiers == "st":
        yield from chain.pairs()
    elif rule.tiers == "t":
        yield from ((tier, tier) for tier in range(len(chain)))
    else:
        yield GPU, GPU


def label(chain: Chain, rule: Rule, source: int, target: int) -> str:
    """Name an event with its tiers: `copy gpu>host`, `release host`, `land`."""
    names = [tier.name for tier in chain.tiers]
    if rule.tiers == "st":
        return f"{rule.label} {names[source]}>{names[target]}"
    return f"{rule.label} {names[target]}" if rule.tiers == "t" else rule.label
