"""`grpo plugins validate`: an environment in, a report on the gold solution of every row; exit code 1 for a refusal."""

from __future__ import annotations

import contextlib
import json
import sys

import click

from grpo.core.check.gold.validate import validate as validate_env
from grpo.core.cli.bar import ProgressBar
from grpo.core.text.printable import printable
from grpo.plugins.errors import UsageError
from grpo.plugins.specs import KINDS


@click.command()
@click.argument("env", metavar="[env:]SPEC")
@click.option("--split", type=click.Choice(["train", "test"]), default="train", help="Default: train.")
@click.option("--size", type=click.IntRange(min=1), help="Only the first N rows. Default: all.")
@click.option("--reward", "rewards", metavar="SPEC", multiple=True, help="A reward of the run; repeat for several.")
@click.option(
    "--env-processes",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Processes that step a multi-turn environment, which may crash there. Default: 0, threads of this process.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every refused row in full.")
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
    """Check that the gold solution of every row is accepted, by the verifier and by the rewards of a run.

    A row whose own solution is refused can never be solved. SPEC is an environment with its options, for example
    gsm8k:dataset=rows.jsonl. Rows that accept a generic cheat of the verifier are listed as weak. The exit code is 1
    when a row is refused or has no gold solution, 0 otherwise.
    """
    prefix, colon, spec = env.partition(":")
    if colon and prefix in KINDS:
        if prefix != "env":
            raise UsageError(
                f"'{env}': only environments have rows to validate. Check it with: grpo plugins check {env}"
            )
        env = spec
    with ProgressBar(None, "validating") as bar, contextlib.redirect_stdout(sys.stderr):
        report = validate_env(
            env, split=split, size=size, rewards=rewards, env_processes=env_processes, on_rows=bar.reached
        )
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else printable(str(report)))
    ctx.exit(0 if report.ok else 1)
