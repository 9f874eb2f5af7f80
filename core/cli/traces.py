"""Prints agents' episodes as OpenEnv's training traces, and traces of a file as episodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grpo.core.cli.agent_page import calls_page
from grpo.core.cli.page import Part, line
from grpo.core.record.agent_calls import agent_of
from grpo.core.record.training_trace import Trace, read_trace, record_of, trace_of
from grpo.core.text.printable import counted, one_line
from grpo.plugins.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from grpo.core.record.browse import Rollout

SHOWN = 8  # traces, unless the user says how many
NAMES = ("step", "rollout", "group", "env", "reward", "advantage")


def write_traces(run: Path, step: int, rollouts: Sequence[Rollout], *, wasted: bool) -> None:
    """Prints recorded rollouts as traces, a JSON object a line; UsageError if none is one, else a count on stderr."""
    from grpo.core.record.run_dir import open_run_dir, read_rollouts

    tokens = read_rollouts(open_run_dir(run), step, wasted=wasted)
    written, untrained, reasons = 0, 0, []
    for rollout in rollouts:
        record = agent_of(rollout.info)
        if record is None:
            reasons.append("no agent played it, and only an agent's record has the token ids of prompts")
            continue
        row = tokens[rollout.number]
        try:
            trace = trace_of(step, rollout, record, row["token_ids"] or (), row["logprobs"] or ())
        except ValueError as error:
            reasons.append(str(error))
            continue
        if not trace.turns:
            untrained += 1
            continue
        click.echo(json.dumps(asdict(trace), ensure_ascii=False))
        written += 1
    if reasons and not written:
        raise UsageError(f"no training trace of step {step}: {reasons[0]}.")
    if reasons:
        click.echo(f"{counted(len(reasons), 'rollout')} left out: {reasons[0]}", err=True)
    if untrained:
        click.echo(f"{counted(untrained, 'rollout')} left out: nothing in them trains", err=True)


def trace_page(path: Path, limit: int | None) -> Iterator[Part]:
    """Yields the lines of so many traces of a file; 0: all, None: a few. Raises DatasetError, UsageError."""
    system_messages: dict[str, str] = {}
    number = -1
    traces = _traces(path)
    for number, trace in enumerate(islice(traces, SHOWN if limit is None else limit or None)):
        record = record_of(trace)
        yield line(_title(number, trace), "bold")
        beside = f", {record.tokens_untrained:,} not trained" if record.tokens_untrained else ""
        yield line(f"{counted(record.calls, 'call')}, {counted(record.tokens_trained, 'token')} trained{beside}", "dim")
        yield from calls_page(record, number, system_messages)
    if number < 0:
        raise UsageError(f"{path} has no traces. grpo show RUN --openenv-trace prints some.")
    if more := sum(1 for _ in traces):
        yield line(f"\n{more} more: --limit 0 shows all")


def _traces(path: Path) -> Iterator[Trace]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is neither a run nor a file of training traces: {error}") from None
    for place, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise ValueError("it is no JSON object")
            trace = read_trace(values)
            record_of(trace)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path}, line {place}: {error}. `grpo show` takes a run, or training traces.") from None
        yield trace


def _title(number: int, trace: Trace) -> str:
    ours = trace.turns[0].ours
    known = [f"{name} {one_line(str(ours[name]), 40)}" for name in NAMES if ours.get(name) not in (None, "")]
    return f"\n#{number}" + (f"  {', '.join(known)}" if known else "")
