"""Habits of the house, as tests: lint, types, layers, public names, light imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kvtier
import kvtier_spec

ROOT = Path(__file__).parent.parent
PACKAGES = ("spec/kvtier_spec", "impl/kvtier")
LONGEST_FILE = 400
LIGHT = """
import sys, kvtier, kvtier.cli
heavy = {"torch", "cuda", "matplotlib", "hypothesis"} & set(sys.modules)
assert not heavy, heavy
import threading
assert threading.active_count() == 1
"""


def run(*command: str) -> None:
    """Run a tool of this environment; its output is the failure."""
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_is_content() -> None:
    """Lint with everything on; each exception is explained in pyproject.toml."""
    run("ruff", "check", ".")


@pytest.mark.timeout(600)
def test_mypy_is_content() -> None:
    """Both packages type-check strictly."""
    run("mypy", "--strict", *PACKAGES)


def test_imports_go_down_only() -> None:
    """The layers of the design, checked by import-linter."""
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml")) == 0


def test_importing_is_light() -> None:
    """No torch, no CUDA, no thread at import, the command line included."""
    subprocess.run([sys.executable, "-c", LIGHT], check=True)  # noqa: S603 - our own text


@pytest.mark.parametrize("package", [kvtier, kvtier_spec])
def test_public_names_exist_and_are_documented(package: object) -> None:
    """`__all__` is sorted by habit, true, and everything in it has a docstring."""
    names = package.__all__  # type: ignore[attr-defined]
    for name in names:
        value = getattr(package, name)
        assert value.__doc__ or not callable(value), name


def test_files_stay_readable() -> None:
    """No file of the packages passes the length at which it stops being one idea."""
    long = {
        str(path.relative_to(ROOT)): lines
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > LONGEST_FILE
    }
    assert not long


def test_every_module_says_its_idea_first() -> None:
    """Each file opens with a docstring."""
    bare = [
        str(path)
        for folder in (*PACKAGES, "model_tests", "gpu_tests")
        for path in (ROOT / folder).rglob("*.py")
        if path.read_text() and not path.read_text().lstrip("#! \n").startswith('"""')
    ]
    assert not bare
