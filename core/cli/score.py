"""Implements `grpo score` and `grpo verify`: adds outcomes to recorded completions and prints a summary on stderr.

They work in blocks of 512 rows, or one for group rewards, and open the output after the first was read without fault.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import click

from grpo.core.cli.options import only
from grpo.core.scoring.recorded_run import is_recorded, read_recorded
from grpo.core.scoring.rows import RecordedRow, begun, group_columns, groups_of, numbered, read_rows, read_table
from grpo.core.scoring.scorer import Scorer
from grpo.core.scoring.tally import ScoreTally
from grpo.core.text.printable import aligned, counted, one_line, printable
from grpo.plugins.errors import DatasetError, PluginError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.rubric import parts
from grpo.plugins.types import Row

_BLOCK = 512
_REFUSED = 5  # rows that a verifier did not accept, which a terminal shows
_WIDEST = 200  # characters of each

Addition = tuple[str, Any]
_FILES = (
    click.option(
        "--input", "source", default="-", show_default=True, help="A run, or a JSONL, Parquet or CSV file; - for stdin."
    ),
    click.option("--output", "target", default="-", show_default=True, help="JSONL file to write; - for stdout."),
    click.option("--json", "as_json", is_flag=True, help="Print the rows on a terminal too."),
    click.option(
        "--opened",
        default="",
        metavar="TEXT",
        help="What the chat template opens each completion with, such as '<think>'.",
    ),
    click.option("--workers", type=click.IntRange(min=1), help="Worker processes.  [default: one per processor]"),
)


def _files(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_FILES):
        command = option(command)
    return command


@click.command()
@click.option("--reward", "rewards", multiple=True, required=True, metavar="SPEC", help="Reward; repeat for several.")
@click.option(
    "--group-column",
    metavar="NAME",
    help="Column that identifies groups, for group rewards.  [default: group, "
    "problem, prompt or question, with step and env]",
)
@_files
def score(
    rewards: tuple[str, ...],
    group_column: str | None,
    source: str,
    target: str,
    as_json: bool,
    opened: str,
    workers: int | None,
) -> None:
    """Score recorded completions with rewards.

    A row is {"completion": "...", <columns>}; the completion may be a list of chat messages. The output row adds
    "scores": for each reward its outcome (score, abstain or failure), its score and the reason of a failure.
    Components of a rubric are listed as rubric.component. Of a run, all recorded completions are scored. On a terminal
    only the summary is printed, unless you add --json. The exit code is 1 if a reward fails and scores no row.
    """
    summary_only = _is_summary_enough(target, as_json=as_json)
    with _results_apart(target) as stdout:
        bound = Host.discover().rewards(rewards)
        grouped = any(reward.grouped for reward in bound)
        if group_column is not None and not grouped:
            raise UsageError("--group-column is for a reward that scores groups, and none of these does. Leave it out.")
        notes: list[str] = []
        tallies = {part.name: ScoreTally() for reward in bound for part in parts(reward)}
        firsts: dict[str, tuple[str | None, Row]] = {}  # reason and row of the first completion

        def gather(rows: list[RecordedRow]) -> list[RecordedRow]:
            columns = group_columns(rows[0].values, group_column)
            keys = groups_of(rows, columns, _name(source))
            notes.append(f"{counted(len(set(keys)), 'group')}: rows with the same {' and '.join(columns)}\n")
            members = numbered(keys, [row.completion for row in rows])
            return [replace(row, completion=member) for row, member in zip(rows, members, strict=True)]

        def add(scorer: Scorer, block: Sequence[RecordedRow]) -> Iterator[Addition]:
            outcomes = scorer.score([row.completion for row in block], rows=[row.line for row in block])
            for name, tally in tallies.items():
                tally.add(outcomes[name])
                if block:
                    firsts.setdefault(name, (outcomes[name][0].reason, block[0].completion.row))
            for index in range(len(block)):
                yield "scores", {name: outcomes[name][index].as_json() for name in tallies}

        def summary() -> str:
            heading = ("reward", "rows", "mean", "std", "abstain", "failure")
            rows = [heading, *((name, *tally.cells()) for name, tally in tallies.items())]
            return "".join(notes) + "\n".join(aligned(rows, right=True))

        with Scorer(bound, workers=workers) as scorer:
            _stream(scorer, add, summary, source, target, stdout, summary_only, opened, gather if grouped else None)
        silent = [part for reward in bound for part in parts(reward) if tallies[part.name].silent]
        for part in silent:
            from grpo.core.check.trial import why_abstained

            why = why_abstained(part, *firsts[part.name])
            click.echo(f"note: reward '{part.name}' abstained on every row: {why}.", err=True)
        _refuse_lost([name for name, tally in tallies.items() if tally.lost], "failed, and no row has a score")


@click.command()
@click.option("--verifier", required=True, multiple=True, callback=only, metavar="SPEC", help="The verifier.")
@_files
def verify(verifier: str, source: str, target: str, as_json: bool, opened: str, workers: int | None) -> None:
    """Judge recorded completions with a verifier.

    Rows are those of `grpo score`. The output row adds "verdict": its outcome (verdict or failure), ok (true, false,
    or null for undecided), the extracted answer, and a reason. On a terminal the summary shows the first rows that were
    not accepted. The exit code is 1 if the verifier fails on every row.
    """
    summary_only = _is_summary_enough(target, as_json=as_json)
    with _results_apart(target) as stdout:
        bound = Host.discover().verifier(verifier)
        tally: Counter[str] = Counter()
        refused: list[str] = []  # the first ones, in words

        def add(scorer: Scorer, block: Sequence[RecordedRow]) -> Iterator[Addition]:
            judgements = scorer.judge([row.completion for row in block], rows=[row.line for row in block])
            for row, judgement in zip(block, judgements[bound.name], strict=True):
                verdict = judgement.as_json()
                tally[column := _column(verdict)] += 1
                if column != "ok" and len(refused) < _REFUSED:
                    reason = f": {verdict['reason']}" if verdict["reason"] else ""
                    refused.append(one_line(f"row {row.line}: {column}{reason}", _WIDEST))
                yield "verdict", verdict

        def summary() -> str:
            columns = ("ok", "not ok", "undecided", "failure")
            cells = (bound.name, str(tally.total()), *(str(tally[column]) for column in columns))
            counts = "\n".join(aligned([("verifier", "rows", *columns), cells], right=True))
            if not summary_only or not refused:
                return counts
            return "\n  ".join([f"{counts}\n\nthe first rows that were not accepted:", *refused])

        with Scorer([bound], workers=workers) as scorer:
            _stream(scorer, add, summary, source, target, stdout, summary_only, opened)
        _refuse_lost([bound.name] if 0 < tally.total() == tally["failure"] else [], "failed on every row")


def _refuse_lost(names: Sequence[str], why: str) -> None:
    """Ends the command with exit code 1 where plugins measured nothing, because they failed."""
    if names:
        raise PluginError(f"{', '.join(names)} {why}; the first failure is shown above.")


def _stream(
    scorer: Scorer,
    add: Callable[[Scorer, Sequence[RecordedRow]], Iterator[Addition]],
    summary: Callable[[], str],
    source: str,
    target: str,
    stdout: BinaryIO,
    summary_only: bool,
    opened: str,
    gather: Callable[[list[RecordedRow]], list[RecordedRow]] | None = None,
) -> None:
    """Reads, scores and writes block by block; a broken line ends it after the rows before it are written.

    With `gather`, which finds the groups, all rows are one block, and a broken line ends it at once. With
    `summary_only` stdout gets the summary and no rows. Raises UsageError for a file that cannot be opened, or a broken
    line.
    """
    with contextlib.ExitStack() as open_files:
        unopened: Counter[str] = Counter()
        rows = (begun(row, opened, unopened) for row in _open_rows(source, open_files))
        block, fault = _next_block(rows, _BLOCK if gather is None else None)
        if fault is not None and (gather is not None or not block):
            raise fault
        if not block:
            raise UsageError(f"{_name(source)} has no rows. Give a line of JSON for each completion.")
        if gather is not None:
            block = gather(block)
        output = stdout if target == "-" else _open_output(target, source, open_files)
        while block:
            for row, (key, value) in zip(block, add(scorer, block), strict=True):
                if not summary_only:
                    output.write(_line({**row.values, key: value}))
            output.flush()
            if fault is not None:
                break
            block, fault = _next_block(rows, _BLOCK)
        if summary_only:
            hint = "Each row with its results: --output FILE writes them, --json prints them."
            stdout.write(f"{summary()}\n\n{hint}\n".encode())
            stdout.flush()
        else:
            click.echo(summary(), err=True)
    for tag, count in unopened.items():
        click.echo(
            f"note: {counted(count, 'completion')} with {tag.replace('<', '</')} and without {tag}. Where the chat "
            f"template opened it: --opened '{tag}'",
            err=True,
        )
    for text in scorer.first_failure.values():
        click.echo(f"\nfirst failure: {printable(text)}", err=True)
    if fault is not None:
        raise fault


def _next_block(rows: Iterator[RecordedRow], size: int | None) -> tuple[list[RecordedRow], DatasetError | None]:
    """Returns the next rows, all that are left for None, and the fault that ended them early."""
    block: list[RecordedRow] = []
    try:
        for row in itertools.islice(rows, size):
            block.append(row)  # noqa: PERF402 - the rows before a fault are kept
    except DatasetError as fault:
        return block, fault
    return block, None


def _name(source: str) -> str:
    return "stdin" if source == "-" else source


def _open_rows(source: str, open_files: contextlib.ExitStack) -> Iterator[RecordedRow]:
    if source == "-":
        return read_rows(sys.stdin.buffer, "stdin")
    path = Path(source)
    if is_recorded(path):
        return read_recorded(path)
    try:
        if path.suffix.lower() in (".csv", ".tsv"):
            return read_table(open_files.enter_context(path.open(encoding="utf-8-sig", newline="")), source)
        return read_rows(open_files.enter_context(path.open("rb")), source)
    except OSError as error:
        raise UsageError(f"--input {source}: {error.strerror}. Name a run, or a JSONL, Parquet or CSV file.") from error


def _open_output(target: str, source: str, open_files: contextlib.ExitStack) -> BinaryIO:
    path = Path(target)
    if source != "-" and path.exists() and path.samefile(source):
        raise UsageError(f"--output {target} is the input. Write to another file.")
    try:
        return open_files.enter_context(path.open("wb"))
    except OSError as error:
        raise UsageError(f"--output {target}: {error.strerror}. Name another file.") from error


def _is_summary_enough(target: str, *, as_json: bool) -> bool:
    return target == "-" and not as_json and sys.stdout.isatty()


@contextlib.contextmanager
def _results_apart(target: str) -> Iterator[BinaryIO]:
    """Gives stdout to the results alone: what plugins print, from Python or below it, goes to stderr."""
    if target != "-":
        yield sys.stdout.buffer
        return
    sys.stdout.flush()
    real = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        with open(real, "wb", closefd=False) as stdout:
            yield stdout
    finally:
        sys.stdout.flush()
        os.dup2(real, sys.stdout.fileno())
        os.close(real)


def _line(values: dict[str, Any]) -> bytes:
    try:
        return json.dumps(values, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8
        return json.dumps(values).encode() + b"\n"


def _column(verdict: dict[str, Any]) -> str:
    if verdict["outcome"] == "failure":
        return "failure"
    return {True: "ok", False: "not ok", None: "undecided"}[verdict["ok"]]
