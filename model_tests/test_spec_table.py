"""The table: it balances, damage to it is noticed, and all that is derived from it agrees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transitions import MachineError

from kvtier_spec import (
    GPU_HOST,
    GPU_HOST_DISK,
    GPU_HOST_DISK_REMOTE,
    Chain,
    ChainError,
    Tier,
    lint,
    render,
    sequence,
    slots,
    states,
)
from kvtier_spec.cases import Case, Needs
from kvtier_spec.lifecycle import RULES, Rule, Verb
from kvtier_spec.machine import compiled, fire, reference
from kvtier_spec.vocabulary import Kind, Phase, SequenceState, SlotState

CHAINS = (GPU_HOST, GPU_HOST_DISK, GPU_HOST_DISK_REMOTE)
THREE_INFALLIBLE = Chain(Tier("gpu", writable=True), Tier("host"), Tier("cxl"))
SPEC = Path(__file__).parent.parent / "spec"


@pytest.mark.parametrize("chain", [*CHAINS, THREE_INFALLIBLE], ids=str)
def test_every_row_balances(chain: Chain) -> None:
    """Slots taken and given, and the bytes in them, account for every declared state."""
    assert lint.lint(chain) == []


def damaged() -> list[tuple[str, tuple[Rule, ...]]]:
    """Every rule with each of its verbs dropped, doubled, or turned into another."""
    found = []
    for index, rule in enumerate(RULES):
        for at in range(3):
            for name, change in DAMAGE.items():
                verbs = _damaged_verbs(rule, at, change)
                rules = (*RULES[:index], replace(rule, verbs=verbs), *RULES[index + 1 :])
                found.append((f"{rule.label}, verb {at} {name}", rules))
    return found


DAMAGE = {
    "dropped": lambda _: (),
    "doubled": lambda verb: (verb, verb),
    "turned": lambda verb: (
        Verb({"take": "give", "give": "take"}.get(verb.op, "give"), verb.tier),
    ),
}


def _damaged_verbs(rule: Rule, at: int, change: Any) -> Any:
    def verbs(case: Case) -> tuple[Verb, ...]:
        whole = rule.verbs(case)
        return (*whole[:at], *change(whole[at]), *whole[at + 1 :]) if at < len(whole) else whole

    return verbs


def test_damage_to_any_verb_is_noticed() -> None:
    """A table with a verb dropped, doubled or turned does not pass, but for harmless repetition."""
    harmless = {"write", "copy"}
    survived = []
    for name, rules in damaged():
        touched = _ops_touched(name, rules)
        if not touched:
            continue
        if not lint.lint(GPU_HOST_DISK, rules) and not ("doubled" in name and touched <= harmless):
            survived.append(name)

    assert survived == [BLIND]


BLIND = "fail touched, verb 0 turned"
"""A target given back while its job may still touch it: a world has no time; I2 sees it."""


def _ops_touched(name: str, rules: tuple[Rule, ...]) -> set[str]:
    label, at = name.rsplit(", verb ", 1)[0], int(name.rsplit(", verb ", 1)[1].split(maxsplit=1)[0])
    whole = {rule.label: rule for rule in RULES}[label]
    del rules
    found = set()
    for state in states.generate(GPU_HOST_DISK):
        for source, target in GPU_HOST_DISK.pairs():
            case = Case(GPU_HOST_DISK, state, source, target)
            if all(guard(case) for guard in whole.guards if guard.needs is Needs.STATE):
                verbs = whole.verbs(case)
                found |= {verbs[at].op} if at < len(verbs) else set()
    return found


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_the_reference_machine_and_the_compiled_dict_agree(chain: Chain) -> None:
    """For every state, event and number of users both allow the same and lead to the same."""
    machine, table = reference(chain), compiled(chain)
    events = {event for _, event in table}
    for state in states.generate(chain):
        for event in events:
            for pins, holds in ((0, 0), (1, 0), (0, 1), (1, 1)):
                page = SimpleNamespace(state=states.name(chain, state), pins=pins, holds=holds)
                row = table.get((state, event))
                if row is None:
                    with pytest.raises(MachineError):
                        fire(machine, page, event)
                    continue
                case = row.case(chain, pins, holds)
                allowed = all(g(case) for g in row.conditions if g.needs is Needs.USERS)
                assert fire(machine, page, event) == allowed
                expected = row.after if allowed else state
                assert page.state == states.name(chain, expected)
                assert (page.pins, page.holds) == (
                    row.rule.users(case) if allowed else (pins, holds)
                )


def test_names_of_states_are_unique() -> None:
    """A state can be told by its name."""
    for chain in CHAINS:
        names = [states.name(chain, state) for state in states.generate(chain)]
        assert len(set(names)) == len(names)


def test_a_promoted_page_is_a_page_of_the_host_not_a_shadow() -> None:
    """After disk -> host the host replica is the primary, and the disk replica its shadow."""
    row = compiled(GPU_HOST_DISK)[states.State(Phase.COMMITTED, frozenset({2}), (2, 1)), "land"]

    assert states.name(GPU_HOST_DISK, row.after) == "host+disk"


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        ((Tier("gpu", writable=True),), "at least two"),
        ((Tier("gpu"), Tier("host")), "writable"),
        ((Tier("gpu", writable=True), Tier("gpu")), "differ"),
        ((Tier("gpu", writable=True), Tier("disk", fallible=True)), "infallible"),
        ((*GPU_HOST_DISK.tiers, Tier("cxl")), "come last"),
    ],
)
def test_a_chain_that_cannot_work_is_refused(tiers: tuple[Tier, ...], message: str) -> None:
    """A bad chain is one clear error."""
    with pytest.raises(ChainError, match=message):
        Chain(*tiers)


def test_a_slot_leaves_every_state_and_sequences_end() -> None:
    """No slot state is a trap, and closed is the only state of a sequence without a way out."""
    moves = [*slots.VERBS.values(), *slots.EVENTS.values()]
    assert {before for before, _ in moves} == set(SlotState)
    assert set(slots.EVENTS) == {Kind.RETIRE, Kind.QUARANTINE, Kind.READMIT, Kind.GROW}
    left = {state for state, _ in sequence.ROWS}
    assert set(SequenceState) - left == {SequenceState.CLOSED}


def test_the_generated_documents_are_current(*, rewrites: bool) -> None:
    """spec/lifecycle.md is what the table says; `pytest --rewrite-golden` writes it anew."""
    path = SPEC / "lifecycle.md"
    text = render.document()

    if rewrites:
        path.write_text(text)
    assert rewrites or path.read_text() == text
