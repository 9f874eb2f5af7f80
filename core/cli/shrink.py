"""Runs `grpo shrink`: finds the smallest text with a suspicious score and prints it as a regression case."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from grpo.core.check.shrink import Shrunk
from grpo.core.check.shrink import shrink as shrink_text
from grpo.core.cli.options import only
from grpo.core.scoring.rows import RecordedRow, group_columns, groups_of, read_rows
from grpo.core.scoring.scorer import Outcome, Scorer
from grpo.core.text.printable import counted, printable
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

_CLOSE = 1e-9
_RAISED = re.compile(r", row \d+: (\w+)(?::|$)")  # in the reason of a failure


@click.command()
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option(
    "--reward", required=True, multiple=True, callback=only, metavar="SPEC", help="Reward with the suspicious score."
)
@click.option("--step", type=click.IntRange(min=1), help="Step of RUN.  [default: the last]")
@click.option("--index", type=click.IntRange(min=0), help="Completion of that step, as numbered by grpo show.")
@click.option("--input", "source", type=click.Path(path_type=Path), help="JSONL file of rows, instead of RUN.")
@click.option("--row", type=click.IntRange(min=1), help="Line of that file, from 1.")
@click.option("--min-score", type=float, help="Keep any score from here up.  [default: exactly this score]")
@click.option("--calls", type=click.IntRange(min=1), default=2000, show_default=True, help="Most texts to try.")
def shrink(
    run: Path | None,
    reward: str,
    step: int | None,
    index: int | None,
    source: Path | None,
    row: int | None,
    min_score: float | None,
    calls: int,
) -> None:
    """Find the smallest text with a suspicious score, and print it as a Case for the reward.

    The completion is number INDEX of a step of RUN, or line ROW of a JSONL file. With a group reward, the other
    completions of its group stay as they are; in a file, groups are those of `grpo score`.
    """
    bound = Host.discover().reward(reward)
    group, place = _recorded(run, step, index, source, row, grouped=bound.grouped)
    completion = group[place]
    with Scorer([bound], workers=1, retries=0) as scorer:
        start = _outcomes(scorer, bound, group, place, [completion.text])[0][place]
        if min_score is not None and (start.score is None or start.score < min_score):
            raise UsageError(f"the completion {_words(start)}, which is not {min_score:g} or more. Lower --min-score.")

        def keeps(texts: Sequence[str]) -> list[bool]:
            return [
                _kept(outcome[place], start, min_score) for outcome in _outcomes(scorer, bound, group, place, texts)
            ]

        done = shrink_text(completion.text, keeps, calls=calls)
        [end] = _outcomes(scorer, bound, group, place, [done.text])
    click.echo(_summary(completion.text, done, start), err=True)
    shrunk = [done.text if at == place else member.text for at, member in enumerate(group)]
    click.echo(case_text(bound, completion, shrunk, end))


def case_text(bound: BoundReward, completion: Completion, texts: Sequence[str], outcomes: Sequence[Outcome]) -> str:
    """Returns a `Case` as Python, with the columns that the reward reads; a failure has no score to expect."""
    columns = completion.row
    if not bound.spec.any_column:
        names = [name for column in bound.spec.columns for name in column.names]
        columns = {name: completion.row[name] for name in names if name in completion.row}
    given = [repr(text) for text in texts]
    scores = ["..." if outcome.kind == "failure" else repr(outcome.score) for outcome in outcomes]
    failed = next((f"  # {printable(outcome.reason or '')}" for outcome in outcomes if outcome.kind == "failure"), "")
    if len(texts) > 1:
        lines = ["Case(", "    [", *(f"        {text}," for text in given), "    ],"]
        expect = f"[{', '.join(scores)}]"
    else:
        lines = ["Case(", f"    {given[0]},"]
        [expect] = scores
    lines += [f"    row={dict(columns)!r},", f"    expect={expect},{failed}"]
    if bound.options:
        lines += [f"    options={dict(bound.options)!r},"]
    return "\n".join([*lines, ")"])


def _recorded(
    run: Path | None, step: int | None, index: int | None, source: Path | None, row: int | None, *, grouped: bool
) -> tuple[list[Completion], int]:
    if (run is None) == (source is None):
        raise UsageError("name RUN with --index, or a file with --input rows.jsonl --row N.")
    if run is not None and run.is_file():
        raise UsageError(f"{run} is a file of rows, and no run: name it with --input {run} --row N.")
    if source is not None:
        if row is None or step is not None or index is not None:
            raise UsageError("--input needs --row N, the line of the completion, and neither --step nor --index.")
        return _line(source, row, grouped=grouped)
    if index is None or row is not None:
        raise UsageError("RUN needs --index N, the number of the completion in grpo show, and no --row.")
    assert run is not None
    return _rollout(run, step, index, grouped=grouped)


def _line(source: Path, number: int, *, grouped: bool) -> tuple[list[Completion], int]:
    rows: list[RecordedRow] = []
    try:
        with source.open("rb") as lines:
            for row in read_rows(lines, str(source)):
                if grouped or row.line == number:
                    rows.append(row)
                if not grouped and rows:
                    break
    except OSError as error:
        raise UsageError(f"--input {source}: {error.strerror}.") from error
    if number not in [row.line for row in rows]:
        raise UsageError(f"{source} has no row on line {number}.")
    keys = groups_of(rows, group_columns(rows[0].values, None), str(source)) if grouped else [""]
    own = keys[[row.line for row in rows].index(number)]
    members = [row for row, key in zip(rows, keys, strict=True) if key == own]
    return [row.completion for row in members], [row.line for row in members].index(number)


def _rollout(path: Path, step: int | None, index: int, *, grouped: bool) -> tuple[list[Completion], int]:
    from grpo.core.record.browse import read_step, to_completion
    from grpo.core.record.run_dir import open_run_dir

    recorded, rollouts = read_step(open_run_dir(path), step)
    if index >= len(rollouts):
        raise UsageError(f"step {recorded} of {path} has the completions 0 to {len(rollouts) - 1}, and no {index}.")
    chosen = rollouts[index]
    others = [
        rollout for rollout in rollouts if grouped and rollout.group == chosen.group and "failure" not in rollout.info
    ]
    members = [rollout for rollout in rollouts if rollout is chosen or rollout in others]
    return [to_completion(member) for member in members], members.index(chosen)


def _outcomes(
    scorer: Scorer, bound: BoundReward, group: Sequence[Completion], place: int, texts: Sequence[str]
) -> list[list[Outcome]]:
    answers = []
    for number, text in enumerate(texts):
        changed = replace(group[place], text=text, messages=({"role": "assistant", "content": text},), token_ids=())
        answers += [replace(changed if at == place else member, group=number) for at, member in enumerate(group)]
    outcomes = scorer.score(answers)[bound.name]
    return [outcomes[first : first + len(group)] for first in range(0, len(outcomes), len(group))]


def _kept(outcome: Outcome, start: Outcome, minimum: float | None) -> bool:
    if minimum is not None:
        return outcome.score is not None and outcome.score >= minimum
    if outcome.score is None or start.score is None:
        return (outcome.kind, _raised(outcome)) == (start.kind, _raised(start))
    return abs(outcome.score - start.score) <= _CLOSE * max(1.0, abs(start.score))


def _raised(outcome: Outcome) -> str:
    """Returns the name of the exception of a failure, "" where none was raised."""
    match = _RAISED.search(outcome.reason or "")
    return match[1] if match else ""


def _words(outcome: Outcome) -> str:
    if outcome.kind == "failure":
        return f"fails ({printable(outcome.reason or '')})"
    return "abstains" if outcome.score is None else f"scores {outcome.score:g}"


def _summary(text: str, done: Shrunk, start: Outcome) -> str:
    ended = "" if done.minimal else "; the calls ran out, so it may get smaller with more --calls"
    became = f"{counted(len(text), 'character')} became {len(done.text)} in {counted(done.calls, 'call')}"
    return f"it {_words(start)}; {became}{ended}"
