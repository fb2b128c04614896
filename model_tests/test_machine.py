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

from kvtier.policy import POLICIES
from model_tests import walk
from model_tests.driver import Driver, populate
from model_tests.universe import PROMPTS, Call, Setup

ENGINES = ("null", "cpu", "late")


def enabled(machine: CacheMachine) -> st.SearchStrategy[Call]:
    """Draw a name, then a call: flat, the calls with most arguments would crowd out the others."""
    assert machine.driver is not None
    by_name = machine.driver.calls()
    return st.sampled_from(sorted(by_name)).flatmap(lambda name: st.sampled_from(by_name[name]))


class CacheMachine(RuleBasedStateMachine):
    """Calls drawn from all enabled ones, from a drawn start; faults are arguments of a call."""

    engines: tuple[str, ...] = ENGINES
    policies: tuple[str, ...] = tuple(sorted(POLICIES))

    def __init__(self) -> None:
        super().__init__()
        self.driver: Driver | None = None

    @initialize(
        policy=st.runner().flatmap(lambda machine: st.sampled_from(machine.policies)),
        gpu=st.integers(3, 8),
        host=st.integers(0, 3) | st.integers(4, 12),
        engine=st.runner().flatmap(lambda machine: st.sampled_from(machine.engines)),
        ran=st.lists(
            st.tuples(st.integers(0, len(PROMPTS) - 1), st.sampled_from(("close", "suspend"))),
            max_size=12,
        ),
    )
    def start(
        self, policy: str, gpu: int, host: int, engine: str, ran: list[tuple[int, str]]
    ) -> None:
        """Start with a cache that has run some prompts, one after the other, to some end."""
        self.driver = Driver(Setup(policy, gpu, host, engine))
        for prompt, end in ran:
            populate(self.driver, prompt, end)

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


def test_a_seeded_walk_reaches_every_row_of_the_table() -> None:
    """Whatever the spec allows on two tiers happens, but for losses by a device fault."""
    calls: Counter[str] = Counter()

    for number in range(200):
        walk.walk(number, ENGINES, calls)

    assert calls.total() == 200 * walk.STEPS_A_RUN
    assert [row for row in walk.never_reached() if not row[1].startswith("lose")] == []
