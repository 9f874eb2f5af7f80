"""Runs `grpo plugins validate`: plays the gold solution of every row; exit code 1 for a refusal."""

from __future__ import annotations

import contextlib
import json
import sys

import click

from grpo.core.check.gold.validate import validate as validate_env
from grpo.core.cli import options
from grpo.core.cli.bar import progress_bar
from grpo.core.text.printable import printable
from grpo.plugins.errors import UsageError
from grpo.plugins.specs import KINDS


@click.command()
@click.argument("env", metavar="[env:]SPEC")
@options.split
@click.option(
    "--size",
    type=options.AT_LEAST_ONE,
    help="Only the first N rows. Default: all; 200 where the environment makes its own.",
)
@options.rewards
@click.option(
    "--env-processes",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Processes that step a multi-turn environment. Default: one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every refused row in full.")
@click.pass_context
def validate(
    ctx: click.Context,
    env: str,
    split: str,
    size: int | None,
    rewards: tuple[str, ...],
    env_processes: int,
    as_json: bool,
) -> None:
    """Check that verifier and rewards accept the gold solution of every row.

    If a row's own solution is refused, the row can never be solved. SPEC is an environment with its options, for
    example gsm8k:dataset=rows.jsonl. Rows that accept a generic cheat of the verifier are listed as weak. The exit
    code is 1 if a row is refused or has no gold solution.
    """
    prefix, colon, spec = env.partition(":")
    if colon and prefix in KINDS:
        if prefix != "env":
            raise UsageError(
                f"'{env}': only environments have rows to validate. Check it with: grpo plugins check {env}"
            )
        env = spec
    with progress_bar() as bar, contextlib.redirect_stdout(sys.stderr):
        task = bar.add_task("validating", total=None)
        report = validate_env(
            env,
            split=split,
            size=size,
            rewards=rewards,
            env_processes=env_processes,
            on_rows=lambda done, rows: bar.update(task, completed=done, total=rows),
        )
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else printable(str(report)))
    ctx.exit(0 if report.ok else 1)
