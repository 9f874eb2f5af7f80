"""The costly reward of `benchmarks/busy.py`, which worker processes compute while the trainer does."""

from __future__ import annotations

from grpo import reward

WORK = 200_000  # additions, about 5 ms


@reward(version=1, range=(0.0, 1.0))
def costly(completion: str, answer: str) -> float:
    """Scores 1 if the completion contains the gold answer, after a lot of additions."""
    return float(sum(range(WORK)) > 0 and answer in completion)
