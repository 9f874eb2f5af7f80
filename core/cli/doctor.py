"""Runs `grpo doctor`: prints a line for each thing that runs need, without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import click

from grpo.core.doctor.lines import Line
from grpo.core.text.printable import printable

COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


@click.command()
@click.option("--quick", is_flag=True, help="Leave out the two steps of training.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, quick: bool, as_json: bool) -> None:
    """Diagnose this machine: what would stop a run?

    Checks versions, processors, memory, disks, GPU, plugins, sandbox, docker and hub, and trains two steps. The output
    holds no secrets and can be pasted into an issue. The exit code is 1 if a line is an error.
    """
    from grpo.core.doctor.examine import examine

    on_line = (lambda line: None) if as_json else _print
    lines = examine(Path("runs"), train=not quick, on_line=on_line)
    worst = [line for line in lines if line.state == "error"]
    if as_json:
        click.echo(json.dumps({"ok": not worst, "lines": [line.as_json() for line in lines]}, indent=2))
    ctx.exit(1 if worst else 0)


def _print(line: Line) -> None:
    click.echo(f"{click.style(line.state.ljust(7), fg=COLOURS[line.state])}  {line.about:<16}  {printable(line.text)}")
    if line.next:
        click.echo(f"{'':27}{printable(line.next)}")
