"""Runs `grpo diff`: compares the advantages under two sets of rewards."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from grpo.core.cli.bar import status_line
from grpo.core.scoring.rows import group_columns, groups_of, numbered, read_rows
from grpo.core.text.printable import counted, one_line, printable
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.types import Completion

if TYPE_CHECKING:
    from grpo.core.check.diff import Change, Difference
    from grpo.plugins._spec.binding import BoundReward

_WIDTH = 100
Recorded = tuple[dict[str, Any], dict[str, float]]  # outcomes and weights by reward


@click.command()
@click.argument("source", type=click.Path(path_type=Path), metavar="RUN_OR_JSONL")
@click.option("--old", multiple=True, metavar="SPEC", help="Old reward; repeat for several.  [default: the run's]")
@click.option("--new", multiple=True, required=True, metavar="SPEC", help="New reward; repeat for several.")
@click.option(
    "--group-column",
    metavar="NAME",
    help="Column that identifies groups in a JSONL file.  [default: group, problem, prompt or question]",
)
@click.option(
    "--scale",
    type=click.Choice(["group", "none"]),
    default="group",
    show_default=True,
    help="Divide advantages by the group's standard deviation, or not.",
)
@click.option("--limit", type=click.IntRange(min=0), default=5, show_default=True, help="Texts to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def diff(
    source: Path,
    old: tuple[str, ...],
    new: tuple[str, ...],
    group_column: str | None,
    scale: Literal["group", "none"],
    limit: int,
    as_json: bool,
) -> None:
    """Show how a change of rewards changes the advantages of recorded completions.

    RUN_OR_JSONL is a run directory (all its steps) or a file of rows for `grpo score`. Rewards are SPECs with weights.
    Without
    --old, the run's recorded scores are used.
    """
    host = Host.discover()
    before, after = host.rewards(old), host.rewards(new)
    recorded: Recorded | None = None
    with status_line("reading completions") as begins:
        if source.is_dir():
            if group_column is not None:
                raise UsageError("--group-column is for JSONL files; a run knows its groups. Leave it out.")
            groups, completions, recorded = _of_run(source)
        else:
            groups, completions = _of_file(source, group_column)
            if not old:
                raise UsageError("--old is missing: a file does not say which rewards it was scored with. Name them.")
        from grpo.core.check.diff import compare
        from grpo.core.train.advantages.estimators import group_mean

        count = counted(len(completions), "completion")
        if old or recorded is None:
            begins(f"scoring {count} with the old rewards")
            recorded = _scored(before, completions), {reward.name: reward.weight for reward in before}
        begins(f"scoring {count} with the new rewards")
        outcomes = _scored(after, completions)
    weights = {reward.name: reward.weight for reward in after}
    difference = compare(groups, recorded[0], outcomes, recorded[1], weights, partial(group_mean, scale=scale))
    worst = difference.worst(limit)
    if as_json:
        click.echo(json.dumps(_values(difference, worst, completions), indent=2))
    else:
        click.echo("\n".join(_lines(difference, worst, completions)))


def _scored(rewards: Sequence[BoundReward], completions: Sequence[Completion]) -> dict[str, Any]:
    from grpo.core.scoring.scorer import Scorer

    with Scorer(rewards) as scorer:
        outcomes = scorer.score(completions)
        for failure in scorer.first_failure.values():
            click.echo(f"first failure: {printable(failure)}\n", err=True)
    return {reward.name: outcomes[reward.name] for reward in rewards}


def _of_run(path: Path) -> tuple[list[str], list[Completion], Recorded]:
    from grpo.core.record.browse import to_completion
    from grpo.core.scoring.recorded_run import own_outcomes, rollouts_of

    rollouts = list(rollouts_of(path))
    groups = [f"step {step}, group {rollout.group}" for step, rollout in rollouts]
    completions = [to_completion(rollout) for _, rollout in rollouts]
    return groups, numbered(groups, completions), own_outcomes(path, [rollout for _, rollout in rollouts])


def _of_file(path: Path, column: str | None) -> tuple[list[str], list[Completion]]:
    try:
        with path.open("rb") as lines:
            rows = list(read_rows(lines, str(path)))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}. Name a run directory or a JSONL file.") from error
    if not rows:
        raise UsageError(f"{path} has no rows.")
    groups = groups_of(rows, group_columns(rows[0].values, column), str(path))
    return groups, numbered(groups, [row.completion for row in rows])


def _lines(difference: Difference, worst: Sequence[Change], completions: Sequence[Completion]) -> Iterator[str]:
    count = len(difference.changes)
    yield f"{counted(count, 'completion')} in {counted(difference.groups, 'group')}"
    yield f"mean reward        {_number(difference.mean_old)} -> {_number(difference.mean_new)}"
    yield f"without a reward   {difference.unscored_old} -> {difference.unscored_new}"
    yield f"signal lost        {_groups(difference.lost_signal)}"
    yield f"signal gained      {_groups(difference.gained_signal)}"
    yield f"sign flips         {len(difference.flips)} of {counted(count, 'advantage')}"
    yield f"mean shift         {difference.mean_shift:.3f} of an advantage"
    if worst:
        yield "\nmost changed:"
    for change in worst:
        moved = f"advantage {change.old.advantage:+.2f} -> {change.new.advantage:+.2f}"
        rewarded = f"reward {_number(change.old.total)} -> {_number(change.new.total)}"
        yield f"  {moved}, {rewarded}, {one_line(str(change.group), 40)}{', flipped' if change.flipped else ''}"
        yield f"    | {one_line(completions[change.index].text, _WIDTH)}"


def _groups(groups: Sequence[Hashable]) -> str:
    shown = "; ".join(one_line(str(group), 40) for group in groups[:3])
    return f"{counted(len(groups), 'group')}{f' ({shown})' if shown else ''}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _values(difference: Difference, worst: Sequence[Change], completions: Sequence[Completion]) -> dict[str, Any]:
    return {
        "completions": len(difference.changes),
        "groups": difference.groups,
        "mean": [difference.mean_old, difference.mean_new],
        "unscored": [difference.unscored_old, difference.unscored_new],
        "lost_signal": list(difference.lost_signal),
        "gained_signal": list(difference.gained_signal),
        "flips": len(difference.flips),
        "mean_shift": difference.mean_shift,
        "worst": [
            {
                "group": change.group,
                "completion": completions[change.index].text,
                "reward": [change.old.total, change.new.total],
                "advantage": [change.old.advantage, change.new.advantage],
                "flipped": change.flipped,
            }
            for change in worst
        ],
    }
