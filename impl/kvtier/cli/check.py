"""`kvtier check` explores the lifecycle; `kvtier diagram` draws it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from time import perf_counter

import click

from kvtier.cli.output import console, print_table
from kvtier_spec import (
    GPU_HOST,
    GPU_HOST_DISK,
    GPU_HOST_DISK_REMOTE,
    Chain,
    census,
    experiments,
    goals,
    invariants,
    lint,
    render,
)
from kvtier_spec.explore import Exploration, explore, label_of
from kvtier_spec.world import Event, Spec

CHAINS = {"2": GPU_HOST, "3": GPU_HOST_DISK, "4": GPU_HOST_DISK_REMOTE}


@dataclass(frozen=True, slots=True)
class Scope:
    """One world to count: chain, pages, slots of each tier."""

    chain: Chain
    pages: int
    slots: int


SCOPES = (
    Scope(GPU_HOST, 2, 2),
    Scope(GPU_HOST_DISK, 2, 2),
    Scope(GPU_HOST_DISK_REMOTE, 2, 2),
    Scope(GPU_HOST_DISK, 3, 2),
)


@click.command()
@click.option(
    "--plant",
    metavar="RULE:GUARD",
    help="Remove one guard of the table and show the shortest way to what breaks.",
)
def check(plant: str | None) -> None:
    """Explore all reachable states of small worlds, with every invariant in each.

    Bounds: a page has at most one pin and one hold, a tier at most one quarantined slot.
    """
    if plant:
        sys.exit(_planted(plant))
    problems = _lint() + _census() + _searches() + _goals()
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    here = dict.fromkeys([*invariants.WORLD, *invariants.STEP])
    console.print(f"checked here: {', '.join(sorted(here, key=_number))}")
    there = sorted({*invariants.AUDIT, *invariants.ELSEWHERE} - set(here), key=_number)
    console.print(f"checked on the runtime, by its tests: {', '.join(there)}")
    sys.exit(1 if problems else 0)


def _number(invariant: str) -> int:
    return int(invariant[1:])


def _lint() -> list[str]:
    return [problem for chain in CHAINS.values() for problem in lint.lint(chain)]


def _census() -> list[str]:
    rows, problems = [], []
    for scope in SCOPES:
        begin = perf_counter()
        found = census.count(scope.chain, pages=scope.pages, slots_each=scope.slots)
        seconds = perf_counter() - begin
        never = census.never_fired(scope.chain, found)
        rows.append(
            [
                str(scope.chain),
                str(scope.pages),
                str(scope.slots),
                f"{found.states:,}",
                f"{found.edges:,}",
                str(len(never)),
                f"{seconds:.1f}",
            ]
        )
        problems += found.violations
        problems += [
            f"never fired: {event} from {state} on {scope.chain}" for state, event in never
        ]
    columns = ("chain", "pages", "slots a tier", "states", "edges", "rows never fired", "seconds")
    print_table("reachable worlds, pages and slots up to renaming", columns, rows)
    return problems


SEARCHES: tuple[tuple[Chain, int, tuple[int, ...]], ...] = (
    (GPU_HOST, 2, (2, 2)),
    (GPU_HOST_DISK, 2, (1, 1, 1)),
    (GPU_HOST_DISK_REMOTE, 1, (1, 1, 1, 1)),
)
"""Worlds in which slots are named, verbs are executed, and every step is checked too."""


def _searches() -> list[str]:
    rows, problems = [], []
    for chain, pages, slots in SEARCHES:
        begin = perf_counter()
        found = explore(Spec(chain), pages=pages, slots=slots)
        seconds = perf_counter() - begin
        counts = f"{found.states:,}", f"{found.edges:,}"
        rows.append([str(chain), str(pages), str(slots[0]), *counts, f"{seconds:.1f}"])
        problems += [str(violation) for violation in found.violations]
    columns = ("chain", "pages", "slots a tier", "states", "edges", "seconds")
    print_table("searched with named slots, every step checked", columns, rows)
    return problems


def _goals() -> list[str]:
    rows, problems = [], []
    wanted = goals.goals(GPU_HOST_DISK)
    found = explore(Spec(GPU_HOST_DISK), pages=2, slots=(2, 2, 1), goals=wanted, stop_at_goals=True)
    for name in wanted:
        path = found.reached.get(name)
        rows.append([name, "never" if path is None else str(len(path))])
        problems += [] if path is not None else [f"goal not reached: {name}"]
    print_table("places that must be reachable", ("goal", "events to get there"), rows)
    return problems + [str(violation) for violation in found.violations]


def _planted(plant: str) -> int:
    rule, _, guard = plant.partition(":")
    if (rule, guard) not in set(experiments.guards()):
        known = ", ".join(f"'{r}:{g}'" for r, g in experiments.guards())
        raise click.BadParameter(f"no guard {plant!r}; there are {known}", param_hint="--plant")
    found = experiments.missing(rule, guard)
    if not found.violations:
        reason = experiments.SILENT.get((rule, guard), "nobody knows why: please report it")
        console.print(f"without '{guard}' of '{rule}' nothing breaks: {reason}")
        return 0
    _print_path(found)
    return 1


def _print_path(found: Exploration) -> None:
    console.print(f"[red]{found.violations[0]}[/red]\nshortest way, {len(found.path)} events:")
    for number, event in enumerate(found.path, 1):
        console.print(f"  {number}. {_event(event)}")


def _event(event: Event) -> str:
    chain = GPU_HOST_DISK_REMOTE
    if event.page < 0:
        return f"{event.rule} slot {event.slot} of {chain.tiers[event.target].name}"
    parts = [f"{label_of(Spec(chain), event)}, page {event.page}"]
    parts += [f"slot {event.slot}"] if event.slot is not None else []
    parts += [f"key {event.key}"] if event.key is not None else []
    parts += [f"from twin {event.twin}"] if event.twin is not None else []
    return ", ".join(parts) + ("" if event.fenced else ", without a fence")


@click.command()
@click.option(
    "--tiers",
    type=click.Choice(list(CHAINS)),
    default="2",
    show_default=True,
    help="Length of the chain gpu, host, disk, remote.",
)
@click.option("--flights", is_flag=True, help="Draw states in flight too.")
@click.option("--table", is_flag=True, help="Print the table event x state instead, as Markdown.")
def diagram(tiers: str, flights: bool, table: bool) -> None:
    """Draw the page lifecycle as a Mermaid state diagram."""
    chain = CHAINS[tiers]
    text = render.table(chain) if table else render.mermaid(chain, with_flights=flights)
    click.echo(text, nl=False)
