"""`grpo push`: a run in, its model with a card and a report on the Hugging Face hub out."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from grpo.core.cli.bar import StatusLine
from grpo.core.text.printable import counted, one_line

MEGABYTE = 1_000_000
FORMS = {
    "adapter": "the adapter; its base model stays where it is",
    "merged": "the model, with the adapter added, since the hub has not got its base",
    "model": "the model",
}


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("repository", metavar="OWNER/NAME")
@click.option("--private", is_flag=True, help="A repository that is made is shown to its owner alone.")
@click.option("--branch", metavar="NAME", help="A branch, made where there is none. Default: the main one.")
@click.option("--no-report", is_flag=True, help="Leave the page of `grpo report` out, and with it all rollouts.")
@click.option("--message", metavar="TEXT", help="Of the commit. Default: names the run.")
@click.option("--dry-run", type=click.Path(path_type=Path), metavar="DIR", help="Write DIR and send nothing.")
def push(
    run: Path,
    repository: str,
    private: bool,
    branch: str | None,
    no_report: bool,
    message: str | None,
    dry_run: Path | None,
) -> None:
    """Send the model of RUN, a card and the report to a repository of the Hugging Face hub.

    The card says what was trained on which rewards in which versions, with which result and alarms. All of it is one
    commit; running it again replaces what it wrote. Needs a token: `hf auth login`, or HF_TOKEN.
    """
    from grpo.core.report.push import push as send
    from grpo.core.report.push import refuse_bad_repository, write_pushed

    refuse_bad_repository(repository)
    with tempfile.TemporaryDirectory(prefix="grpo-push-") as scratch:
        folder = dry_run if dry_run is not None else Path(scratch) / "model"
        with StatusLine("writing the model, the card and the report") as line:
            made = write_pushed(run, folder, report=not no_report)
            line.begins("sending")
            for text in _told(made.form, made.files, made.rollouts):
                click.echo(text)
            if dry_run is not None:
                click.echo(f"wrote {dry_run} and sent nothing")
                return
            said = message or f"Model, card and report of the run {one_line(run.resolve().name)}"
            where = send(folder, repository, private=private, revision=branch, message=said)
    click.echo(where)


def _told(form: str, files: dict[str, int], rollouts: int | None) -> list[str]:
    size = sum(files.values()) / MEGABYTE
    told = [f"{counted(len(files), 'file')}, {size:.1f} MB: {FORMS[form]}"]
    if rollouts is not None:
        told.append(f"report.html holds {counted(rollouts, 'rollout')} with their prompts; --no-report leaves it out")
    return told
