"""What the terminal says of a run before any rollout is looked at: its line, alarms and metrics in, text out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from textual.content import Content

from grpo.core.record.list import HELD_OUT, RunLine
from grpo.core.report.alarms import Alarm
from grpo.core.text.printable import counted, one_line
from grpo.core.text.times import day_and_time, duration
from grpo.core.watch.terminal.blocks import number, spark

NAME_WIDTH = 28
ENDS_WIDTH = 24
RECENT = 5  # steps at either end whose rewards are compared
# What is looked at first; the other metrics follow in the order in which the run writes them.
FIRST = ("reward", "accuracy", HELD_OUT, "reward_std", "frac_reward_zero_std", "entropy", "kl", "loss")
ALARMS = {"health": "warning", "hacking": "hacking", "canary": "canary", "failure": "failure", "state": "end"}
STATUS = {"running": "ansi_cyan", "done": "ansi_green", "interrupted": "ansi_yellow"}


def status_line(name: str, line: RunLine, right: str, width: int) -> Content:
    """Returns the top line: the run, how far it is, and at the right end how old this is."""
    steps = f"step {line.step} of {line.steps}" if line.steps else f"step {line.step}"
    parts: list[str | tuple[str, str]] = [(f" {name}  ", "bold"), (line.status, STATUS.get(line.status, "ansi_red"))]
    parts.append(f"  {steps}")
    if line.reward is not None:
        parts.append(f"  reward {line.reward:.3g}")
    left = Content.assemble(*parts).truncate(max(8, width - len(right) - 2), ellipsis=True, pad=True)
    return left + Content(f" {right}")


def facts(line: RunLine, metrics: Sequence[Mapping[str, Any]], rollouts: int, waiting: int) -> Content:
    """Returns the key figures of a run."""
    rewards = ", ".join(line.rewards) or ("defaults" if line.defaults else "")
    own = "; ".join(f"{env}: {', '.join(names)}" for env, names in line.env_rewards.items())
    told = [("model", line.model), ("env", line.env), ("rewards", "; ".join(filter(None, [rewards, own])))]
    values = [value for row in metrics if isinstance(value := row.get("reward"), (int, float))]
    if values:
        width = max(1, min(RECENT, len(values) // 2))
        first, last = values[:width], values[-width:]
        ends = f"{sum(first) / len(first):.3g} -> {sum(last) / len(last):.3g}"
        told.append(("reward", f"{ends}, mean of the first and the last {counted(width, 'step')}"))
    if line.before is not None:
        after = "" if line.after is None else f" -> {line.after:.1%}"
        told.append(("held out", f"{line.before:.1%}{after}"))
    rest = f", {counted(waiting, 'step')} still to read" if waiting else ""
    told.append(("rollouts", f"{rollouts}{rest}, {duration(line.seconds)}, started {day_and_time(line.started)}"))
    lines = [(f"{name:<9} ", one_line(value, 200)) for name, value in told if value]
    return Content("\n").join(Content.assemble((name, "dim"), value) for name, value in lines)


def alarm_line(alarm: Alarm) -> Content:
    """Returns an alarm on one or more lines."""
    return Content.assemble(
        (f"{ALARMS.get(alarm.kind, 'alarm'):<8}", "bold ansi_red"), f"step {alarm.step}  {one_line(alarm.text, 400)}"
    )


def curves(metrics: Sequence[Mapping[str, Any]], width: int) -> Content:
    """Returns a line for each metric: its name, its course, its first and its last value.

    A metric that stayed at zero is named and not drawn.
    """
    keys = dict.fromkeys(key for row in metrics for key in row if key != "step")
    order = [key for key in FIRST if key in keys] + [key for key in keys if key not in FIRST]
    lines, zero = [], []
    for key in order:
        values = [_finite(row.get(key)) for row in metrics]
        known = [value for value in values if value is not None]
        if not known or key.startswith((f"{HELD_OUT}_low", f"{HELD_OUT}_high")):
            continue
        if not any(known):
            zero.append(one_line(key, NAME_WIDTH))
            continue
        there = values if len(known) * 2 >= len(values) else known  # what is measured rarely would be mostly gaps
        drawn = spark(there, max(8, width - NAME_WIDTH - ENDS_WIDTH))
        name = one_line(key, NAME_WIDTH - 1).ljust(NAME_WIDTH)
        lines.append(Content.assemble(name, (drawn, "ansi_cyan"), f"  {number(known[0])} -> {number(known[-1])}"))
    if zero:
        lines.append(Content.styled(f"always 0: {', '.join(zero)}", "dim"))
    return Content("\n").join(lines) if lines else Content.styled("No metrics yet.", "dim")


def settings(config: Mapping[str, Any], versions: Mapping[str, Any]) -> Content:
    """Returns every setting, every version and the lock of every plugin on a line."""
    lines: list[Content] = []
    for title, values in (("Settings", config), ("Versions and plugins", versions)):
        lines.append(Content.styled(title, "bold"))
        lines += [
            Content.assemble((f"  {one_line(name, 80)} = ", "dim"), one_line(value, 400))
            for name, value in _flat(values)
        ]
    return Content("\n").join(lines)


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
