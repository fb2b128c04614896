"""How the commands print: tables for people on standard output, progress on standard error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

console = Console(highlight=False)
_progress = Console(stderr=True)

PIPE_WIDTH = 160
"""Columns of a table that is written to a file or a pipe."""

if not console.is_terminal:
    console = Console(highlight=False, width=PIPE_WIDTH)


def progress() -> Progress:
    """Make a progress bar; nothing is drawn where standard error is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=_progress,
        transient=True,
        disable=not _progress.is_terminal,
    )


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; the first column is left-aligned, the others right."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
