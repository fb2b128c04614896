"""A tier is one entry in a chain and one class: `remote`, backed by a dictionary, runs everywhere.

What follows up to the first test is all that such a tier takes. Nothing of spec or runtime knows
it; replay, explorer and the stateful machine run over it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from kvtier import Cache, Config
from kvtier.replay import Modes, Replay, Sizes
from kvtier.tiers import Memory
from kvtier.trace import extract, load
from kvtier_spec import Chain, Tier, census, lint
from kvtier_spec.explore import explore
from kvtier_spec.world import Spec
from model_tests.driver import Driver
from model_tests.test_machine import CacheMachine
from model_tests.universe import Setup

CHAIN = Chain(
    Tier("gpu", writable=True),
    Tier("host"),
    Tier("disk", fallible=True, durable=True),
    Tier("remote", fallible=True, durable=True),
)


class Remote(Memory):
    """Pages in a dictionary, as an object store would have them."""

    def __init__(self, slots: int, page_bytes: int) -> None:
        self._shape = slots, page_bytes
        self.kept: dict[int, bytes] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """Slots, and bytes of each."""
        return self._shape

    def read(self, slots: Any) -> Any:
        """A slot that was never written is a KeyError: the read fails."""
        rows = [self.kept[slot] for slot in slots.tolist()]
        return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)

    def write(self, slots: Any, data: Any) -> None:
        """Keep copies."""
        rows = (row.tobytes() for row in data)
        self.kept.update(zip(slots.tolist(), rows, strict=True))

    def invalidate(self, kept: Any) -> None:
        """After a reset nothing but these can be read."""
        stays = set(kept.tolist())
        self.kept = {slot: row for slot, row in self.kept.items() if slot in stays}

    def close(self) -> None:
        """Forget everything."""
        self.kept = {}


# ------------------------------------------------------------------- that was all of the new tier


class RemoteDriver(Driver):
    """A driver whose last tier is the dictionary."""

    chain = CHAIN
    factories = {"remote": Remote}  # noqa: RUF012 - read only


class RemoteMachine(CacheMachine):
    """The stateful machine over it; it cannot be resized, which is refused."""

    engines = ("cpu", "late")
    colder = 2
    least_colder = 2
    driver_class = RemoteDriver


def test_the_stateful_machine_runs_over_a_new_tier() -> None:
    """Nothing that a user can call breaks an invariant."""
    run_state_machine_as_test(
        RemoteMachine, settings=settings(max_examples=40, stateful_step_count=40, deadline=None)
    )


def test_the_explorer_runs_over_a_new_tier() -> None:
    """Its states, rows and worlds are generated, balance, and break no invariant."""
    found = census.count(CHAIN, pages=2, slots_each=1)
    searched = explore(Spec(CHAIN), pages=1, slots=1)

    assert lint.lint(CHAIN) == []
    assert not found.violations
    assert not searched.violations
    assert census.never_fired(CHAIN, found) == []


def test_a_replay_runs_over_a_new_tier() -> None:
    """A trace with real bytes: pages go down to it and come back right."""
    slots = {"gpu": 260, "host": 120, "disk": 150, "remote": 2000}
    sizes = Sizes(window=3, slots=slots, page_bytes=24)
    modes = Modes(policy="page_first", cold_policy="shadow_first")
    run = Replay(load(extract(), limit=60), sizes, modes, CHAIN, tiers={"remote": Remote})
    reached = []
    run.cache.subscribe(lambda batch: reached.extend(r.kind for r in batch if r.source == 3))

    counts = run.run()

    assert counts.verified_pages == counts.pages > 5000
    assert "land" in reached
    assert counts.lost_pages == 0


def test_a_reset_reaches_the_new_tier() -> None:
    """What nobody uses any more is gone from the medium."""
    slots = {"gpu": 2, "host": 2, "disk": 0, "remote": 4}
    chain = Chain(*CHAIN.tiers[:2], CHAIN.tiers[3])
    del slots["disk"]
    config = Config(slots=slots, chain=chain, clean_low=1, clean_high=1)
    remote = Remote(4, 4096)
    with Cache(config, tiers={"remote": lambda _slots, _size: remote}) as of:
        first = of.sequence()
        assert first.resume(new=2)
        first.commit(["a", "b"])
        first.close()
        other = of.sequence()
        assert other.resume(new=2)
        of.poll()
        of.engine.synchronize()
        of.poll()
        assert remote.kept

        of.reset()

        assert remote.kept == {}


def test_a_setup_names_the_tier() -> None:
    """The machine's driver really has the dictionary as its last tier."""
    driver = RemoteDriver(Setup("shadow_first", 3, 2, "cpu", (2, 2)))

    assert isinstance(driver.memories[3][0], Remote)
