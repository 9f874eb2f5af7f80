"""The record of what tokens were trained with, beside the rollouts of runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from grpo.core.record.run_dir import RunDir, read_rollouts
from grpo.core.record.trained import read_trained

pytestmark = pytest.mark.slow

REWARDS = """
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def brittle(completion: str) -> float:
    if sum(map(ord, completion)) % 5 == 0:
        raise RuntimeError("cannot read this one")
    return len(completion) % 7 / 7
"""


def tiny_run(tiny_model: Path, folder: Path, **settings: Any) -> RunDir:
    from grpo import train

    (folder / "mine.py").write_text(REWARDS)
    run = train(
        env="gsm8k:dataset=embedded",
        rewards=[f"{folder}/mine.py:brittle"],
        model=str(tiny_model),
        prompts_per_step=2,
        group_size=4,
        max_completion_length=12,
        evaluation={"size": 0},
        failures={"stop_share": 1.0},
        out=folder / "run",
        **{"steps": 2, "lr": 0.01, **settings},
    )
    return RunDir(run.path)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, (1, 2)),
        ({"micro_batch_size": 2}, (1, 2)),
        ({"loss": {"num_iterations": 2}, "steps": 4}, (1, 3)),
        ({"train": {"head": "trl"}}, (1, 2)),
        ({"loss": {"beta": 0.1}, "lora": {"enabled": True, "rank": 4}}, (1, 2)),
    ],
    ids=str,
)
def test_every_token_with_a_gradient_is_there_with_its_advantage(
    settings: dict[str, Any], steps: tuple[int, ...], tiny_model: Path, tmp_path: Path
) -> None:
    run = tiny_run(tiny_model, tmp_path, **settings)
    whole = settings.get("train") or "beta" in settings.get("loss", {})  # also rows without an advantage
    for step in steps:
        rows, found = read_rollouts(run, step), read_trained(run, step)
        assert any(row["advantage"] for row in rows)
        for number, row in enumerate(rows):
            if row["advantage"]:
                assert len(found[number].log_ratios) == len(row["token_ids"])
                assert list(found[number].advantages) == pytest.approx([row["advantage"]] * row["tokens"], abs=1e-3)
            elif row["outcome.brittle"] == "failure" or not whole:
                assert number not in found
        ratios = [one for each in found.values() for one in each.log_ratios]
        assert max(map(abs, ratios)) < 1e-3, "the weights that sampled are those that train"
    others = {file.name for file in run.rollouts.glob("trained-*")}
    assert others == {f"trained-{step:06d}.parquet" for step in steps}


def test_tokens_that_an_earlier_policy_sampled_are_apart_from_the_one_that_trains(
    tiny_model: Path, tmp_path: Path
) -> None:
    run = tiny_run(tiny_model, tmp_path, steps=4, rollout={"partial": 4})
    own: list[float] = []
    earlier: list[float] = []
    for step in range(2, 5):
        for number, row in enumerate(read_rollouts(run, step)):
            if number in (found := read_trained(run, step)):
                ratios = [abs(one) for one in found[number].log_ratios]
                (by, _), *_ = row["sampled_by"]
                (own if by == step else earlier).append(max(ratios))
    assert earlier
    assert 1e-3 < max(earlier) < math.inf
    assert max(own, default=0.0) < 1e-3
