"""Profiles of Hypothesis, and the flag that rewrites golden files."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


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
