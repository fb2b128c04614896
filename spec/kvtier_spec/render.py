"""Pictures and tables of the lifecycle, generated from the table and never kept by hand.

`mermaid` draws the settled states (no flight, not forgotten by a reset) unless asked for all;
`table` says event x state -> what the page becomes, with the conditions that remain to be asked.
"""

from __future__ import annotations

from kvtier_spec import invariants, states
from kvtier_spec.chain import GPU_HOST, GPU_HOST_DISK, Chain
from kvtier_spec.lifecycle import RULES
from kvtier_spec.machine import Row, rows
from kvtier_spec.states import ABSENT, State
from kvtier_spec.vocabulary import Phase


def mermaid(chain: Chain, *, with_flights: bool = False) -> str:
    """Draw the state diagram as Mermaid text; edges that stay in a state are left out.

    >>> from kvtier_spec.chain import GPU_HOST
    >>> mermaid(GPU_HOST).splitlines()[0]
    'stateDiagram-v2'
    """
    shown = [
        s
        for s in states.generate(chain)
        if with_flights or (s.flight is None and s.phase is not Phase.FORGOTTEN)
    ]
    lines = ["stateDiagram-v2", "    direction LR"]
    lines += [
        f"    {_id(chain, s)} : {_said([states.name(chain, s)])}" for s in shown if s != ABSENT
    ]
    edges: dict[tuple[str, str], list[str]] = {}
    for row in _drawn(chain, shown):
        edge = _id(chain, row.before), _id(chain, row.after)
        edges.setdefault(edge, []).append(row.event)
    lines += [f"    {a} --> {b} : {_said(events)}" for (a, b), events in edges.items()]
    return "\n".join(lines) + "\n"


def _said(words: list[str]) -> str:
    """Write names for Mermaid, to whom `>` is punctuation."""
    return ", ".join(words).replace(">", "→")


def _drawn(chain: Chain, shown: list[State]) -> list[Row]:
    return [
        row
        for row in rows(chain)
        if row.before in shown
        and row.after in shown
        and row.before != row.after
        and row.rule.label != "lose"
    ]


def _id(chain: Chain, state: State) -> str:
    if state == ABSENT:
        return "[*]"
    name = states.name(chain, state)
    for sign, word in (("+", "_"), (">", "_to_"), ("@", "_"), (" ", "_")):
        name = name.replace(sign, word)
    return name


def table(chain: Chain) -> str:
    """Write event x state -> next state as Markdown; an empty cell is an error of the runtime."""
    settled = [s for s in states.generate(chain) if s.flight is None]
    found = {(row.event, row.before): row for row in rows(chain)}
    events = list(dict.fromkeys(row.event for row in rows(chain)))
    head = ["event", *(f"`{states.name(chain, state)}`" for state in settled)]
    lines = [_line(head), _line(["---"] * len(head))]
    for event in events:
        cells = [_cell(chain, found.get((event, state))) for state in settled]
        if any(cells):
            lines.append(_line([f"`{event}`", *cells]))
    return "\n".join(lines) + "\n"


def _cell(chain: Chain, row: Row | None) -> str:
    if row is None:
        return ""
    return "stays" if row.after == row.before else f"`{states.name(chain, row.after)}`"


def guard_table() -> str:
    """Write every rule with its guards as Markdown."""
    lines = [_line(["event", "guards"]), _line(["---", "---"])]
    lines += [
        _line([f"`{rule.label}`", "; ".join(guard.name for guard in rule.guards)]) for rule in RULES
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def document() -> str:
    """Write the reference page of the lifecycle: diagrams, table and guards, all generated."""
    parts = [
        "# The lifecycle, generated",
        "Written from the table by `pytest --rewrite-golden`; a test fails when it is stale.",
        "## Settled states, gpu and host",
        _fenced(mermaid(GPU_HOST)),
        "## Event by state, gpu and host",
        "What a page becomes. An empty cell is an error: the trace checker refuses the event.",
        table(GPU_HOST),
        "## Guards",
        "Conditions of each event, for every chain.",
        guard_table(),
        "## Settled states, gpu, host and disk",
        _fenced(mermaid(GPU_HOST_DISK)),
        "## Event by state, gpu, host and disk (settled states)",
        table(GPU_HOST_DISK),
        "## Invariants",
        invariant_table(),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def invariant_table() -> str:
    """Write the numbered invariants, and by whom each is judged."""
    lines = [_line(["", "invariant", "judged by"]), _line(["---", "---", "---"])]
    for number, title in invariants.TITLES.items():
        here = [
            word
            for word, where in (
                ("every state", invariants.WORLD),
                ("every step", invariants.STEP),
                ("audit of the runtime", invariants.AUDIT),
            )
            if number in where
        ]
        judges = "; ".join(
            [*here, *([invariants.ELSEWHERE[number]] if number in invariants.ELSEWHERE else [])]
        )
        lines.append(_line([number, title, judges]))
    return "\n".join(lines) + "\n"


def _fenced(text: str) -> str:
    return f"```mermaid\n{text}```"
