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

from kvtier.policy import COLD_POLICIES, POLICIES
from kvtier_spec import Batch, Chain, Record, machine, states
from kvtier_spec.lifecycle import label
from kvtier_spec.world import Spec
from model_tests.driver import Driver
from model_tests.populate import populate
from model_tests.universe import CHAINS, GROUPS, PROMPTS, Call, Setup, drawn_names

STEPS_A_RUN = 40


class Reached(Driver):
    """A driver that writes down the rows of the table that its journal fires."""

    rows: ClassVar[dict[str, Counter[tuple[str, str]]]] = {}

    def _feed(self, batch: Batch) -> None:
        chain = self.setup.chain
        spec, rows = Spec(chain), self.rows.setdefault(str(chain), Counter())
        for record in batch:
            before = self.cache._checker.state_names(record.group)  # noqa: SLF001
            if record.pages:
                rule = spec.rule(_rule(record))
                event = label(chain, rule, record.source, record.target)
                rows.update((before.get(page, "absent"), event) for page in record.pages)
                rows.update(("twin@gpu", "joined") for _ in record.twins)
            super()._feed([record])


def _rule(record: Record) -> str:
    if record.is_private:
        return "commit twin"
    if record.is_late:
        return "commit late"
    return "fail touched" if record.is_touched else record.kind


def setup(draw: random.Random, engines: tuple[str, ...], tiers: tuple[int, ...]) -> Setup:
    """Draw what a run is made of: small tiers in a long chain, often one group."""
    colder = draw.choice(tiers) - 2
    return Setup(
        draw.choice(sorted(POLICIES)),
        draw.randint(2 if colder else 3, 4 if colder else 8),
        draw.choice([draw.randint(0, 3), draw.randint(1, 4 if colder else 12)]),
        draw.choice(engines),
        tuple(draw.choice([0, 2, 4, 4, 9, 9, 9]) for _ in range(colder)),
        draw.choice(sorted(COLD_POLICIES)),
        draw.choice(["ahead", "on_demand"]),
        draw.choice([GROUPS[0], GROUPS[0], *GROUPS]),
    )


def walk(
    seed: int, engines: tuple[str, ...], calls: Counter[str], tiers: tuple[int, ...] = (2, 3, 4)
) -> None:
    """Do one run of a drawn cache."""
    draw = random.Random(seed)
    driver = Reached(setup(draw, engines, tiers))
    done: list[Call] = []
    try:
        for _ in range(draw.choice([0, 4, 8, 12, 16])):
            end = draw.choice(["close", "suspend"])
            populate(driver, draw.randrange(len(PROMPTS)), end, draw.randint(0, 3))
        for _ in range(STEPS_A_RUN):
            named = driver.calls()
            done.append(draw.choice(named[draw.choice(drawn_names(named))]))
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
    options.add_argument("--tiers", choices=["2", "3", "4", "all"], default="all")
    options.add_argument("--rows", action="store_true", help="name the rows never reached")
    given = options.parse_args()
    engines = ("null", "cpu", "late") if given.engine == "all" else (given.engine,)
    tiers = (2, 3, 4) if given.tiers == "all" else (int(given.tiers),)
    calls: Counter[str] = Counter()
    begin = perf_counter()
    for seed in range(given.seed, given.seed + -(-given.steps // STEPS_A_RUN)):
        walk(seed, engines, calls, tiers)
    seconds = perf_counter() - begin
    print(f"{calls.total()} steps, {calls.total() / seconds:.0f} a second, nothing found")  # noqa: T201
    print("calls:", dict(calls))  # noqa: T201
    for length in tiers:
        chain = CHAINS[length]
        names = [f"{event} from {state}" for state, event in never_reached(chain)]
        print(f"rows of '{chain}' never reached: {len(names)}")  # noqa: T201
        if given.rows:
            print("\n".join(f"  {name}" for name in names))  # noqa: T201


def never_reached(chain: Chain) -> list[tuple[str, str]]:
    """List the rows of a chain's table that no walk of this process has fired."""
    table = {(states.name(chain, row.before), row.event) for row in machine.rows(chain)}
    return sorted(table - set(Reached.rows.get(str(chain), ())))


if __name__ == "__main__":
    main()
