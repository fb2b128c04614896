"""Faults planted by hand into the runtime: the stateful machine must find each."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from model_tests.faults import (
    FAULTS,
    OF_GROUPS,
    ON_DISK,
    Fault,
    evicts_real_pages_before_shadows,
    goes_on_before_its_pages_have_landed,
    planted,
    tells_nobody_of_a_loss,
)
from model_tests.test_machine import CacheMachine

HUNT = settings(
    max_examples=2000,
    derandomize=False,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.generate],
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

OF_ONE_POLICY: dict[Fault, tuple[str, ...]] = {
    evicts_real_pages_before_shadows: ("shadow_first",),
}
"""A fault of one policy's file is hunted under that policy."""

OF_LATE_COPIES: dict[Fault, tuple[str, ...]] = {
    goes_on_before_its_pages_have_landed: ("late",),
    tells_nobody_of_a_loss: ("late",),
}
"""A fault that only copies can show which are late is hunted where they are."""


@pytest.mark.parametrize("fault", [*FAULTS, *ON_DISK, *OF_GROUPS], ids=lambda f: f.__name__)
def test_each_planted_fault_is_found(fault: Fault) -> None:
    """The machine fails on a runtime with this fault."""
    policies = OF_ONE_POLICY.get(fault, CacheMachine.policies)
    scope: dict[str, object] = {"policies": policies}
    if fault in ON_DISK:
        engines = OF_LATE_COPIES.get(fault, ("cpu", "late"))
        scope |= {"engines": engines, "least_colder": 1, "few_groups": True}
    elif fault not in OF_GROUPS:
        scope |= {"colder": 0}
    hunt = seed(1)(type(fault.__name__, (CacheMachine,), scope))

    with planted(fault), pytest.raises(Exception) as found:  # noqa: PT011 - whatever sees it first
        run_state_machine_as_test(hunt, settings=HUNT)

    assert not isinstance(found.value, AttributeError | NameError), found.value
