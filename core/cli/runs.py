"""Implements `grpo runs` and `grpo show`, without torch; texts of models, datasets and plugins are marked and plain."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grpo.core.cli.agent_page import agent_page
from grpo.core.cli.page import DETAIL, Part, line, print_page, quoted
from grpo.core.cli.table import print_table
from grpo.core.cli.traces import trace_page, write_traces
from grpo.core.text.printable import counted, one_line
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from grpo.core.record.browse import Rollout, ShownOutcome, SortKey
    from grpo.core.record.list import RunLine

RUNS = Path("runs")
HEADINGS = ("run", "env", "model", "rewards", "status", "started", "time", "step", "reward", "held out")
STATUS_STYLE = {"running": "cyan", "done": "green", "interrupted": "yellow"}
ROLES = ("system", "user", "assistant", "tool")
LONGEST_PATH = 4096  # characters, of which a system allows fewer
SHOWN = 8  # completions, unless the user says how many


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per run, as a list.")
def runs(folder: Path | None, as_json: bool) -> None:
    """List the runs in FOLDER (default: runs), oldest first.

    A run is running, done, interrupted, failed, or killed (its process is gone). Its time counts steps, held-out
    evaluations and checkpoints. "held out" has the first and last accuracy.
    """
    from grpo.core.record.list import list_runs

    listed = list_runs(folder or RUNS) if folder is not None or RUNS.is_dir() else []
    if as_json:
        click.echo(json.dumps([{**asdict(row), "path": str(row.path)} for row in listed], indent=2))
        return
    if not listed:
        click.echo(f"no runs in {folder or RUNS}. Start one with: grpo run --env gsm8k")
        return
    print_table(
        HEADINGS,
        [_cells(row) for row in listed],
        long=(1, 2, 3),
        state=4,
        style=lambda status: STATUS_STYLE.get(status.partition(",")[0], "red"),
    )
    for row in listed:
        if row.problem:
            click.echo(f"unreadable: {one_line(row.problem, 500)}", err=True)
    stopped = [row.path for row in listed if row.resumes and row.status != "failed"]
    failed = [row.path for row in listed if row.resumes and row.status == "failed"]
    for resumable, text in ((stopped, "Continue the newest with"), (failed, "Once its error is fixed, continue with")):
        if resumable:
            click.echo(f"\n{text}: grpo run --resume {shlex.quote(_named(resumable[-1]))}", err=True)
            break


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--step", type=click.IntRange(min=1), help="Step. Default: the last.")
@click.option("--sort", type=click.Choice(["reward", "advantage", "length"]), help="Sort key, highest first.")
@click.option("--ascending", is_flag=True, help="With --sort: lowest first.")
@click.option("--limit", type=click.IntRange(min=0), help=f"Completions to show; 0: all. Default: {SHOWN}.")
@click.option("--group", type=click.IntRange(min=0), help="Only the completions of this group.")
@click.option("--failures", is_flag=True, help="Only completions that a reward failed on.")
@click.option("--wasted", is_flag=True, help="Only discarded samples, which were replaced in their step.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list (of all, without --limit).")
@click.option(
    "--openenv-trace",
    is_flag=True,
    help="Print OpenEnv's TrainingTrace of each agent episode, one per line.",
)
def show(
    run: Path,
    step: int | None,
    sort: SortKey | None,
    ascending: bool,
    limit: int | None,
    group: int | None,
    failures: bool,
    wasted: bool,
    as_json: bool,
    openenv_trace: bool,
) -> None:
    """Show recorded completions of RUN: prompt, completion, outcome of each reward, advantage.

    RUN may also be a file of OpenEnv training traces, one per line.
    """
    from grpo.core.record.browse import as_json as rollout_json
    from grpo.core.record.browse import choose, read_step
    from grpo.core.record.run_dir import open_run_dir

    if ascending and sort is None:
        raise UsageError("--ascending needs --sort reward, advantage or length.")
    if not run.exists():
        raise UsageError(f"{run} does not exist. List the runs with: grpo runs. For a plugin: grpo plugins show {run}")
    if run.is_file():
        chosen = {"--step": step, "--sort": sort, "--group": group, "--failures": failures, "--wasted": wasted}
        chosen |= {"--json": as_json, "--openenv-trace": openenv_trace}
        if named := [name for name, value in chosen.items() if value]:
            raise UsageError(f"{named[0]} is for a run, and {run} is a file. Leave it out.")
        print_page(trace_page(run, limit))
        return
    step, recorded = read_step(open_run_dir(run), step, wasted=wasted)
    if wasted and not recorded:
        click.echo("[]" if as_json else f"step {step} of {_named(run)}: no sample was discarded.")
        return
    matching = choose(recorded, sort=sort, ascending=ascending, group=group, failures=failures)
    if limit is None:
        limit = len(matching) if as_json or openenv_trace else SHOWN
    shown = matching[: limit or None]
    if openenv_trace:
        write_traces(run, step, shown, wasted=wasted)
        return
    if as_json:
        click.echo(json.dumps([rollout_json(step, rollout) for rollout in shown], indent=2))
        return
    if not shown:
        place = f"step {step} of {_named(run)}" + ("" if group is None else f", group {group}")
        count = sum(group in (None, rollout.group) for rollout in recorded)
        click.echo(f"{place}: no reward failed on any of its {count} completions.")
        return
    print_page(_page(run, step, recorded, shown))
    if len(shown) < len(matching):
        click.echo(
            f"\n{len(matching) - len(shown)} more: --limit 0 shows all, --step, --sort and --group choose", err=True
        )


def _cells(row: RunLine) -> tuple[str, ...]:
    steps = f"{row.step}/{row.steps}" if row.steps else "-"
    reward = "-" if row.reward is None else f"{row.reward:.3g}"
    held_out = "-" if row.before is None else f"{row.before:.1%}"
    if row.after is not None:
        held_out += f" -> {row.after:.1%}"
    own = [f"{env}: {', '.join(rewards)}" for env, rewards in row.env_rewards.items()]
    shared = ", ".join(row.rewards) or ("defaults" if row.defaults else "")
    rewards = "; ".join(filter(None, [shared, *own])) or "-"
    status = f"{row.status}, resumes" if row.resumes else row.status
    time = duration(row.seconds) if row.seconds else "-"
    named = (str(row.path), row.env or "-", row.model or "-", rewards)
    texts = (*named, status, day_and_time(row.started), time, steps, reward, held_out)
    return tuple(one_line(text, 200) for text in texts)


def _page(run: Path, step: int, recorded: Sequence[Rollout], shown: Sequence[Rollout]) -> Iterator[Part]:
    from grpo.core.record.browse import by_group, worth_showing

    groups = len({rollout.group for rollout in recorded})
    count = f"{len(shown)} of {len(recorded)}" if len(shown) < len(recorded) else str(len(recorded))
    yield line(f"{_named(run)}, step {step}: {count} completions, {counted(groups, 'group')}", "bold")
    shown_systems: set[str] = set()  # a system message that all groups share is shown once
    agents: dict[str, str] = {}  # and one that agents share
    for members in by_group(shown):
        yield line(f"\ngroup {members[0].group}", "bold cyan")
        for message in members[0].prompt:
            role, content = message["role"], message["content"]
            if role == "system" and content in shown_systems:
                continue
            yield line(f"{role if role in ROLES else f'role {one_line(role, 40)}'}:", "dim")
            yield quoted(content, "dim" if role == "system" else "")
            if role == "system":
                shown_systems.add(content)
        if row := worth_showing(members[0]):
            yield line("row:", "dim")
            yield quoted("\n".join(f"{one_line(name)}: {one_line(value)}" for name, value in row.items()), "dim")
        for rollout in members:
            yield from _completion(rollout, agents)


def _completion(rollout: Rollout, agents: dict[str, str]) -> Iterator[Part]:
    from rich.text import Text

    from grpo.core.record.agent_calls import agent_of
    from grpo.core.record.browse import FINISHED

    reward = "none" if rollout.reward is None else f"{rollout.reward:.3g}"
    finish = FINISHED.get(rollout.finish_reason, one_line(rollout.finish_reason, 40))
    head = (
        f"\n#{rollout.number}  reward {reward}  advantage {rollout.advantage:+.3g}  {rollout.tokens} tokens, {finish}"
    )
    yield line(head, "bold")
    if len(rollout.sampled_by) > 1:
        parts = ", ".join(f"{step} ({tokens} tokens)" for step, tokens in rollout.sampled_by)
        yield line(f"sampled by the policies of the steps {parts}", "dim")
    if (agent := agent_of(rollout.info)) is not None:
        yield from agent_page(agent, rollout.info, rollout.number, rollout.completion, agents)
    elif rollout.info:
        yield from _turns(rollout)
    else:
        yield quoted(rollout.completion)
    graded = [rollout.info.get(name) for name in ("reason", "graded")]
    if texts := [text for text in graded if isinstance(text, str) and text.strip()]:
        yield line("the grader:", "dim")
        yield quoted("\n".join(texts))
    width = max((len(name) for name in rollout.outcomes), default=0)
    for name, outcome in rollout.outcomes.items():
        yield DETAIL, _outcome(one_line(name).ljust(width), outcome)
    if rollout.why:
        verdict = {True: "right", False: "wrong", None: "undecided"}[rollout.right]
        yield DETAIL, Text(f"verdict  {verdict}  {one_line(rollout.why, 500)}", style="dim")


def _turns(rollout: Rollout) -> Iterator[Part]:
    turn_rewards = rollout.info.get("rewards")
    rewards = rollout.turn_rewards or (turn_rewards if isinstance(turn_rewards, list) else ())
    worth = rollout.turn_advantages or ()
    turn = 0
    for message in rollout.messages:
        if message["role"] == "assistant":
            earned = f"  reward {_figure(rewards[turn])}" if turn < len(rewards) else ""
            earned += f"  advantage {worth[turn]:+.3g}" if turn < len(worth) else ""
            turn += 1
            yield line(f"turn {turn}{earned}", "dim")
        else:
            yield line("tool:" if message["role"] == "tool" else "environment:", "dim")
        yield quoted(message["content"])
    if "failure" in rollout.info:
        yield line("the environment failed:", "red")
        yield quoted(str(rollout.info["failure"]), "red")


def _figure(value: object) -> str:
    """Returns what an environment reported as a reward, which may be anything."""
    return f"{value:.3g}" if isinstance(value, float) else one_line(str(value), 20)


def _named(run: Path) -> str:
    return one_line(str(run), LONGEST_PATH)


def _outcome(name: str, outcome: ShownOutcome) -> Text:
    from rich.text import Text

    kind = {"abstain": "abstained", "failure": "failed"}.get(outcome.outcome, outcome.outcome)
    text = Text(f"{name}  ", style="dim")
    text.append(
        one_line(kind, 40) if outcome.score is None else f"{outcome.score:.3g}",
        style={"failure": "red", "abstain": "yellow"}.get(outcome.outcome, "green"),
    )
    if outcome.reason:
        text.append(f"  {one_line(outcome.reason, 500)}")
    return text


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def day_and_time(moment: str) -> str:
    """Returns an ISO 8601 moment by this machine's clock, as `ls -l` does: "Nov 25 21:39", "Nov 25 2025"; "" for ""."""
    if not moment:
        return "-"
    local = datetime.fromisoformat(moment).astimezone()
    return f"{local:%b} {local.day:2} " + (f"{local:%H:%M}" if local.year == datetime.now().year else f"{local.year}")
