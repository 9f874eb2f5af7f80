"""Makes run directories as a run would have left them, without training."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo.core.record.run_dir import RolloutRow, RunDir, append_metrics, create_run_dir, write_json, write_rollouts

QUESTION = "Ann has {} pens and buys {} more. How many has she?"
Change = Callable[[RolloutRow, int], RolloutRow]


def made_run(
    path: Path, *, steps: int = 3, groups: int = 2, members: int = 4, change: Change | None = None, **config: Any
) -> RunDir:
    """Makes a run of arithmetic whose policy gets better.

    Args:
        path: the run directory, which must not exist.
        steps, groups, members: its size.
        change: alters a rollout, given its number in the step.
        config: settings that are not the usual ones.
    """
    settings = {
        "env": "gsm8k",
        "rewards": ["proximity"],
        "env_rewards": {},
        "model": None,
        "train": {"steps": steps, "dtype": "float32", "lr": 3e-05},
        "loss": {"advantage": "group_mean"},
        **config,
    }
    plugins = {"reward proximity": {"kind": "reward", "name": "proximity", "weight": 1.0, "columns": ["answer"]}}
    run = create_run_dir(path, settings, {"libraries": {"torch": "2.13.0"}, "plugins": plugins})
    append_metrics(run, {"step": 0, **held_out(0.4)})
    for step in range(1, steps + 1):
        rows = []
        for number in range(groups * members):
            row = made_rollout(step, number // members, number % members, step / steps)
            rows.append(row if change is None else change(row, number))
        write_rollouts(run, step, rows)
        append_metrics(run, made_metrics(step, rows) | (held_out(0.4 + 0.5 * step / steps) if step == steps else {}))
    write_json(run.state, {"status": "done", "step": steps, "updated": "2026-01-01 00:00:00"})
    return run


def grow(run: RunDir, step: int, skill: float = 1.0) -> None:
    """Adds a step of eight rollouts to a run."""
    rows = [made_rollout(step, number // 4, number % 4, skill) for number in range(8)]
    write_rollouts(run, step, rows)
    append_metrics(run, made_metrics(step, rows))


def made_rollout(step: int, group: int, member: int, skill: float) -> RolloutRow:
    """Makes one rollout; the first members of a group are right, the more the better the policy is."""
    first, second = 3 + group, 4 + group
    right = member == 0 or member / 4 < skill
    answer = first + second + (0 if right else member)
    return RolloutRow(
        step=step,
        group=group,
        prompt=json.dumps([{"role": "user", "content": QUESTION.format(first, second)}]),
        completion=f"She has {first}+{second}={answer}.\n#### {answer}",
        tokens=14 + member,
        finish_reason="stop",
        columns=json.dumps({"question": QUESTION.format(first, second), "answer": str(first + second), "level": 1.0}),
        reward=1.0 if right else 1 / (1 + member),
        advantage=0.7 if right else -0.7 / (1 + member),
        outcomes={"proximity": ("score", 1.0 if right else 1 / (1 + member), None)},
        env="gsm8k",
        right=right,
    )


def failed(row: RolloutRow, reason: str) -> RolloutRow:
    """Returns a rollout that its reward failed on."""
    return replace(row, reward=None, advantage=0.0, outcomes={"proximity": ("failure", None, reason)}, right=None)


def made_metrics(step: int, rows: list[RolloutRow]) -> dict[str, Any]:
    """Returns the metrics of a step."""
    rewards = [row.reward for row in rows if row.reward is not None]
    lengths = [row.tokens for row in rows]
    return {
        "step": step,
        "loss": -0.1 / step,
        "completions/mean_length": sum(lengths) / len(lengths),
        "reward": sum(rewards) / max(1, len(rewards)),
        "frac_reward_zero_std": 0.0,
        "rewards/proximity/mean": sum(rewards) / max(1, len(rewards)),
        "rewards/proximity/failure": 1 - len(rewards) / len(rows),
        "rewards/proximity/abstain": 0.0,
        "accuracy": sum(row.right is True for row in rows) / len(rows),
        "entropy": 0.5 * math.exp(-step / 10),
        "time/generate": 0.5,
        "time/step": 2.0,
        "time/tokens_per_second": sum(lengths) / 0.5,
    }


def held_out(accuracy: float) -> dict[str, float]:
    """Returns what is measured on held-out problems."""
    low, high = accuracy - 0.05, accuracy + 0.05
    return {
        "held_out/accuracy": accuracy,
        "held_out/accuracy_low": low,
        "held_out/accuracy_high": high,
        "held_out/problems": 200.0,
        "held_out/questions": 118.0,
    }
