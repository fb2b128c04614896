"""The stateful machine: one rule whose argument is any call that makes sense now."""

from __future__ import annotations

import sys
from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvtier.policy import COLD_POLICIES, POLICIES
from kvtier_spec import GPU_HOST
from model_tests import walk
from model_tests.driver import Driver
from model_tests.populate import populate
from model_tests.universe import GROUPS, PROMPTS, Call, Setup, drawn_names

ENGINES = ("null", "cpu", "late")


def enabled(machine: CacheMachine) -> st.SearchStrategy[Call]:
    """Draw a name, then a call: flat, the calls with most arguments would crowd out the others."""
    assert machine.driver is not None
    by_name = machine.driver.calls()
    return st.sampled_from(drawn_names(by_name)).flatmap(
        lambda name: st.sampled_from(by_name[name])
    )


@st.composite
def setups(draw: st.DrawFn, machine: CacheMachine) -> Setup:
    """Draw what a run is made of; tiers are small where the chain is long."""
    colder = draw(
        st.lists(
            st.sampled_from((4, 9, 2, 0)), min_size=machine.least_colder, max_size=machine.colder
        )
    )
    return Setup(
        draw(st.sampled_from(machine.policies)),
        draw(st.integers(2 if colder else 3, 4 if colder else 8)),
        draw(st.integers(0, 3) | st.integers(1, 4 if colder else 12)),
        draw(st.sampled_from(machine.engines)),
        tuple(colder),
        draw(st.sampled_from(sorted(COLD_POLICIES))),
        draw(st.sampled_from(("ahead", "on_demand"))),
        draw(st.sampled_from(GROUPS[:1] if machine.few_groups else GROUPS)),
    )


class CacheMachine(RuleBasedStateMachine):
    """Calls drawn from all enabled ones, from a drawn start; faults are arguments of a call."""

    engines: tuple[str, ...] = ENGINES
    policies: tuple[str, ...] = tuple(sorted(POLICIES))
    colder: int = 2
    """How many tiers there may be behind the host."""
    least_colder: int = 0
    few_groups: bool = False
    driver_class: type[Driver] = Driver

    def __init__(self) -> None:
        super().__init__()
        self.driver: Driver | None = None

    @initialize(
        setup=st.runner().flatmap(setups),
        ran=st.lists(
            st.tuples(
                st.integers(0, len(PROMPTS) - 1),
                st.sampled_from(("close", "suspend")),
                st.integers(0, 3),
            ),
            max_size=12,
        ),
    )
    def start(self, setup: Setup, ran: list[tuple[int, str, int]]) -> None:
        """Start with a cache that has run some prompts, one after the other, to some end."""
        self.driver = self.driver_class(setup)
        for prompt, end, more in ran:
            populate(self.driver, prompt, end, more)

    @precondition(lambda self: self.driver is not None)
    @rule(call=st.runner().flatmap(enabled))
    def do(self, call: Call) -> None:
        """Do one call and check everything."""
        assert self.driver is not None
        self.driver.do(call)

    def teardown(self) -> None:
        """Find nothing left; not after a failure, whose error this would replace."""
        if self.driver is not None and sys.exc_info()[0] is None:
            self.driver.finish()


class NullMachine(CacheMachine):
    """The book-keeping alone."""

    engines = ("null",)


class BytesMachine(CacheMachine):
    """Real bytes, at once and late, with failing copies."""

    engines = ("cpu", "late")


PROFILE = settings(stateful_step_count=40, deadline=None)


def test_the_cache_obeys_the_spec_with_books_only() -> None:
    """Nothing that a user can call breaks an invariant: null engine."""
    run_state_machine_as_test(NullMachine, settings=PROFILE)


def test_the_cache_obeys_the_spec_with_bytes_late_and_failing() -> None:
    """Nothing that a user can call breaks an invariant: bytes, late copies, failing copies."""
    run_state_machine_as_test(BytesMachine, settings=PROFILE)


UNREACHED = {("forgotten@host", "hold")}
"""Nobody finds a forgotten page to hold it; with two tiers, where nothing is lost, nobody needs to
hold again what it holds."""


def test_a_seeded_walk_reaches_every_row_of_the_table() -> None:
    """Whatever the spec allows on two tiers happens, but for losses by a device fault."""
    calls: Counter[str] = Counter()

    for number in range(400):
        walk.walk(number, ENGINES, calls, tiers=(2,))

    assert calls.total() == 400 * walk.STEPS_A_RUN
    never = {row for row in walk.never_reached(GPU_HOST) if not row[1].startswith("lose")}
    assert never <= UNREACHED
