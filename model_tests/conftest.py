"""Profiles of Hypothesis, and the flag that rewrites golden files."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = 150
"""Runs of a property in the short profiles; a run of the state machine has 40 steps."""
SOAK = 50
"""How many times longer the profile `soak` looks."""

settings.register_profile("short", deadline=None, max_examples=EXAMPLES)
settings.register_profile("soak", deadline=None, max_examples=EXAMPLES * SOAK)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "short")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite-golden`."""
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        help="write stories and generated documents anew instead of comparing them",
    )


@pytest.fixture
def rewrites(request: pytest.FixtureRequest) -> bool:
    """Say whether golden files are to be written anew."""
    return bool(request.config.getoption("--rewrite-golden"))
