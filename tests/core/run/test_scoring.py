"""Scoring in a run: what is told of plugins that fail, and what a plugin may not do to the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from grpo import Completion, Verdict, reward, verifier
from grpo.core.config.schema import parse_config
from grpo.core.planning.decide import make_plan
from grpo.core.run.scoring import Scoring
from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins.errors import RunError
from grpo.plugins.host import Host


@verifier(version=1, isolation="inline")
def broken(completion: str) -> Verdict:
    raise ValueError("no such answer")


@reward(version=1, isolation="inline")
def seeding(completion: str) -> float:
    torch.manual_seed(0)
    return 1.0


@reward(version=1, isolation="inline")
def failing(completion: str) -> float:
    raise ValueError("no such reward")


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def scoring(tiny_model: Path, tmp_path: Path, warnings: list[str]) -> Iterator[Scoring]:
    tree = {"env": "gsm8k", "dataset": "embedded", "model": str(tiny_model), "out": str(tmp_path / "run")}
    made = make_plan(parse_config({**tree, "train": {"limit": 4}, "evaluation": {"size": 2}}), Host.discover())
    rewards = (BoundReward(seeding, "dist"), BoundReward(failing, "dist"))
    scored = replace(made.envs[0], verifier=BoundVerifier(broken, "dist"), rewards=rewards)
    with closing(Scoring(replace(made, envs=(scored,)), warnings.append)) as scoring:
        yield scoring


def test_a_failing_verifier_is_told_of_as_one_and_once(scoring: Scoring, warnings: list[str]) -> None:
    for _ in range(2):
        verdicts = scoring.judge([Completion("4", row={"answer": "4"})] * 2)
        assert [verdict.ok for verdict in verdicts] == [None, None]
        assert "no such answer" in str(verdicts[0].reason)
    (warning,) = warnings
    assert warning.startswith("a verifier failed; the completions that it failed on are excluded from accuracy")
    assert "ValueError: no such answer" in warning


def test_a_verifier_that_fails_too_often_stops_the_run(scoring: Scoring) -> None:
    scoring.judge([Completion("", finish_reason="error", info={"failure": "the game crashed"})])
    scoring.stop_on_faults()  # what the environment failed on is no fault of the verifier
    with pytest.raises(RunError, match=r"verifier 'broken' \(dist\) failed on 2 of 2 completions, over fail"):
        scoring.judge_held_out([Completion("4", row={"answer": "4"})] * 2)


def test_a_failing_reward_is_no_zero_and_is_told_of_once(scoring: Scoring, warnings: list[str]) -> None:
    for _ in range(2):
        outcomes = scoring.score([Completion("4", row={"answer": "4"})])["failing"]
        assert [(outcome.kind, outcome.score) for outcome in outcomes] == [("failure", None)]
    (warning,) = warnings
    assert warning.startswith("a reward failed; its completion is masked, never a zero.")


def test_a_reward_that_seeds_torch_does_not_make_every_step_sample_the_same(scoring: Scoring) -> None:
    before = torch.get_rng_state()
    outcomes = scoring.score([Completion("4", row={"answer": "4"})], scoring.begin())
    assert [outcome.score for outcome in outcomes["seeding"]] == [1.0]
    assert torch.equal(torch.get_rng_state(), before)
