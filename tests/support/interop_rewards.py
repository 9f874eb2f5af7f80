"""Rewards with every outcome, for the tests that score the same completions in other libraries."""

from __future__ import annotations

from grpo import Component, reward, rubric

TEXTS = ("#### 72", "#### 71", "<answer>72</answer>", "no idea", "shy", "crash", "exit")


@reward(version=1, range=(0.0, 1.0), timeout=5.0)
def moody(completion: str, answer: str) -> float | None:
    """Scores, abstains, raises and exits."""
    if completion == "crash":
        raise ValueError("cannot read this one")
    if completion == "exit":
        raise SystemExit(3)
    return None if completion == "shy" else float(answer in completion) / 3


@reward(version=1, range=(0.0, 1.0), isolation="inline")
def short(completion: str) -> float:
    """Knows no trouble."""
    return 1.0 if len(completion) < 10 else 0.25


both = rubric(name="both", version=1, components=[Component(moody, 0.75), Component(short, 0.25)])
