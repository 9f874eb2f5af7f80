"""Runs `grpo doctor`: prints a line for each thing that runs need, without secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import click

from grpo.core.doctor.lines import Line, looked
from grpo.core.text.printable import printable

COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
SOON = 20.0  # seconds for a look
LIBRARIES = 90.0  # for one that imports torch


@click.command()
@click.option("--quick", is_flag=True, help="Leave out the two steps of training.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, quick: bool, as_json: bool) -> None:
    """Diagnose this machine: what would stop a run?

    Checks versions, processors, memory, disks, GPU, plugins, sandbox, docker and hub, and trains two steps. The output
    holds no secrets and can be pasted into an issue. The exit code is 1 if a line is an error.
    """
    lines = []
    for line in _diagnoses(train=not quick):
        lines.append(line)
        if not as_json:
            _print(line)
    worst = [line for line in lines if line.state == "error"]
    if as_json:
        click.echo(json.dumps({"ok": not worst, "lines": [line.as_json() for line in lines]}, indent=2))
    ctx.exit(1 if worst else 0)


def _diagnoses(*, train: bool) -> Iterator[Line]:
    """Looks at everything that a run needs; trouble in one explains trouble in the next."""
    from grpo.core.doctor.around import SELF_TEST, docker, hub, plugins, sandbox, training
    from grpo.core.doctor.machine import accelerator, machine
    from grpo.core.doctor.versions import versions

    looks: list[tuple[str, Callable[[], Iterable[Line]], float]] = [
        ("versions", versions, SOON),
        ("machine", partial(machine, Path("runs")), LIBRARIES),
        ("GPU", accelerator, LIBRARIES),
        ("plugins", plugins, LIBRARIES),
        ("sandbox", sandbox, SOON),
        ("docker", docker, SOON),
        ("hub", hub, SOON),
        *([("training", training, SELF_TEST + SOON)] if train else []),
    ]
    for about, look, seconds in looks:
        yield from looked(about, look, seconds)


def _print(line: Line) -> None:
    click.echo(f"{click.style(line.state.ljust(7), fg=COLOURS[line.state])}  {line.about:<16}  {printable(line.text)}")
    if line.next:
        click.echo(f"{'':27}{printable(line.next)}")
