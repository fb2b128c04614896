"""The command line: one file a command, nothing that the library does not do."""

from __future__ import annotations

import sys

import click

from kvtier.cli.bench import bench
from kvtier.cli.check import check, diagram
from kvtier.cli.replay import replay
from kvtier.errors import KvtierError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kvtier")
def kvtier() -> None:
    """KV-cache pages on GPU, host and disk: replay traces, check the lifecycle, measure."""


for command in (replay, check, diagram, bench):
    kvtier.add_command(command)


def main() -> None:
    """Run the command line; errors of ours are one line and exit code 1."""
    try:
        kvtier()
    except KvtierError as error:
        click.echo(f"kvtier: {error}", err=True)
        sys.exit(1)
