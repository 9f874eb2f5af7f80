"""Runs `grpo push`: publishes model, card and report of a run on the Hugging Face hub."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from grpo.core.cli.bar import status_line
from grpo.core.text.printable import counted, one_line
from grpo.plugins.errors import UsageError

SHOWN = 5  # names of files in a note


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("repo", metavar="REPO")
@click.option("--private", is_flag=True, help="Create a private repository.")
@click.option(
    "--revision", "--branch", metavar="BRANCH", help="Commit to this branch, created if needed. Default: main."
)
@click.option("--message", metavar="TEXT", help="Commit message. Default: what was trained.")
@click.option("--no-model", is_flag=True, help="Push only card, settings and report.")
@click.option("--no-report", is_flag=True, help="Leave out the report, which holds prompts and completions.")
@click.option(
    "--dry-run",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write to DIR what would be pushed, without a network.",
)
def push(
    run: Path,
    repo: str,
    private: bool,
    revision: str | None,
    message: str | None,
    no_model: bool,
    no_report: bool,
    folder: Path | None,
) -> None:
    """Publish model, card and report of RUN in the repository REPO of the Hugging Face hub.

    REPO is OWNER/NAME and is created if needed. Log in with hf auth login, or set HF_TOKEN. An adapter is merged if
    its base model has no hub id. It is one commit, which replaces files of the same names and removes none.
    """
    from grpo.core.report.push import make_folder, pushed_weights, refuse_names, refuse_without_token, upload

    refuse_names(repo, revision)
    if message is not None and not message.strip():
        raise UsageError("--message is empty. Leave it out, or write one.")
    if folder is None:
        refuse_without_token()
    trained_run, weights = pushed_weights(run, model=not no_model)
    if folder is not None:
        with status_line("writing the folder"):
            made = make_folder(trained_run, weights, folder, report=not no_report)
        _print_sizes(made.sizes, made.contents.model, made.rollouts)
        click.echo(f"wrote {folder}; nothing was pushed to {repo}.")
        return
    # Beside the weights, where there is room for as much again more likely than in a small /tmp.
    beside = trained_run.path if os.access(trained_run.path, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix=".push-", dir=beside) as place, status_line("writing the folder") as begins:
        made = make_folder(trained_run, weights, Path(place) / "hub", report=not no_report)
        _print_sizes(made.sizes, made.contents.model, made.rollouts)
        begins(f"uploading {_size(sum(made.sizes.values()))} to {repo}")
        summary = message or "Model, card and report of a run of grpo-kit"
        pushed = upload(made, repo, private=private, branch=revision, message=summary)
    if pushed.changed and pushed.replaced:
        click.echo(f"note: files of these names were replaced: {_names(pushed.replaced)}", err=True)
    if pushed.kept:
        click.echo(f"note: these stay in {repo} and are not of this run: {_names(pushed.kept)}", err=True)
    click.echo(f"pushed to {pushed.url}" if pushed.changed else f"{pushed.url} has all of it already")


def _print_sizes(sizes: dict[str, int], model: str | None, rollouts: int) -> None:
    for name, size in sizes.items():
        click.echo(f"    {name}  {_size(size)}")
    click.echo(f"{counted(len(sizes), 'file')}, {_size(sum(sizes.values()))}")
    if model == "merged":
        click.echo("note: the base model is not on the hub, so its adapter was added to it as a whole model.", err=True)
    if rollouts:
        click.echo(
            f"note: the report holds prompts and completions of {counted(rollouts, 'rollout')}; --no-report leaves it "
            "out.",
            err=True,
        )


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(one_line(name) for name in names[:SHOWN]) + more


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count:,} bytes"
