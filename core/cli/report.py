"""Runs `grpo report`: writes runs as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from grpo.core.text.printable import counted
from grpo.plugins.errors import UsageError

MEGABYTE = 1_000_000


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="File to write.",
)
@click.option(
    "--max-size",
    type=click.FloatRange(min=1),
    default=30,
    show_default=True,
    metavar="MB",
    help="Leave out rollouts, but none that failed, if the file would be larger.",
)
@click.option(
    "--new", multiple=True, metavar="SPEC", help="Also score everything with this reward; repeat for several."
)
def report(runs: tuple[Path, ...], output: Path, max_size: float, new: tuple[str, ...]) -> None:
    """Write curves, settings and rollouts of each RUN as one HTML file that needs no network.

    Several runs are drawn over each other. The rewards of --new are compared, together, with the run's own.
    """
    from grpo.core.report.report import write_report

    if str(output) == "-":
        raise UsageError("--output - names no file, and a report is one. Give a name such as report.html.")

    written = write_report(runs, output, limit=int(max_size * MEGABYTE), new=new)
    click.echo(f"{written.path}: {counted(written.held, 'rollout')}, {written.size / MEGABYTE:.1f} MB")
    if written.held < written.recorded:
        click.echo(
            f"{written.recorded - written.held} of {written.recorded} rollouts were left out; --max-size takes more",
            err=True,
        )
