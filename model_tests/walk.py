"""A seeded walk over the cache: long, fast, without shrinking.

    python -m model_tests.walk --steps 100000 --engine null

Prints steps a second, calls by name, and the rows of the spec's table that were never reached. A
failure prints its seed and its calls; the state machine in `test_machine.py` finds short ones.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from time import perf_counter
from typing import ClassVar

from kvtier.policy import POLICIES
from kvtier_spec import GPU_HOST, Batch, machine, states
from kvtier_spec.lifecycle import label
from kvtier_spec.world import Spec
from model_tests.driver import Driver, populate
from model_tests.universe import PROMPTS, Call, Setup

STEPS_A_RUN = 40


class Reached(Driver):
    """A driver that writes down the rows of the table that its journal fires."""

    rows: ClassVar[Counter[tuple[str, str]]] = Counter()

    def _audit(self, batch: Batch) -> None:
        spec = Spec(GPU_HOST)
        for record in batch:
            before = self.cache._checker.state_names()  # noqa: SLF001
            rule = "commit twin" if record.is_private else record.kind
            if record.pages:
                event = label(GPU_HOST, spec.rule(rule), record.source, record.target)
                self.rows.update((before.get(page, "absent"), event) for page in record.pages)
                self.rows.update(("twin@gpu", "joined") for _ in record.twins)
            self.cache._checker.feed([record])  # noqa: SLF001
        self._watch_policy(batch)


def walk(seed: int, engines: tuple[str, ...], calls: Counter[str]) -> None:
    """Do one run of a drawn cache."""
    draw = random.Random(seed)
    policy = draw.choice(sorted(POLICIES))
    driver = Reached(Setup(policy, draw.randint(3, 8), draw.randint(0, 12), draw.choice(engines)))
    done: list[Call] = []
    try:
        for _ in range(draw.randint(0, 12)):
            populate(driver, draw.randrange(len(PROMPTS)), draw.choice(["close", "suspend"]))
        for _ in range(STEPS_A_RUN):
            named = driver.calls()
            done.append(draw.choice(named[draw.choice(sorted(named))]))
            driver.do(done[-1])
        driver.finish()
    except BaseException:
        print(f"seed {seed}, {driver.setup}, calls {done}")  # noqa: T201
        raise
    calls.update(call[0] for call in done)


def main() -> None:
    """Walk as far as asked."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--engine", choices=["null", "cpu", "late", "all"], default="all")
    given = options.parse_args()
    engines = ("null", "cpu", "late") if given.engine == "all" else (given.engine,)
    calls: Counter[str] = Counter()
    begin = perf_counter()
    for seed in range(given.seed, given.seed + -(-given.steps // STEPS_A_RUN)):
        walk(seed, engines, calls)
    seconds = perf_counter() - begin
    print(f"{calls.total()} steps, {calls.total() / seconds:.0f} a second, nothing found")  # noqa: T201
    print("calls:", dict(calls))  # noqa: T201
    names = [f"{event} from {state}" for state, event in never_reached()]
    print("rows never reached:", ", ".join(names))  # noqa: T201


def never_reached() -> list[tuple[str, str]]:
    """List the rows of the two-tier table that no walk of this process has fired."""
    table = {(states.name(GPU_HOST, row.before), row.event) for row in machine.rows(GPU_HOST)}
    return sorted(table - set(Reached.rows))


if __name__ == "__main__":
    main()
