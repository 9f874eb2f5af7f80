"""Scoring the completions of several environments."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from grpo import Completion, Verdict, reward, verifier
from grpo.core.env.mixture import RunEnv
from grpo.core.env.scores import ELSEWHERE, scores_by_env, verdicts_by_env
from grpo.core.scoring.scorer import Scorer
from grpo.core.train.advantages.estimators import group_mean
from grpo.core.train.batch.batch import Batch, advantages_of, stop_on_failures
from grpo.core.train.batch.env_metrics import env_metrics
from grpo.core.train.batch.metrics import batch_metrics
from grpo.plugins._spec.binding import BoundAdvantage, BoundEnv, BoundReward, BoundVerifier
from grpo.plugins.errors import RunError
from grpo.plugins.specs import EnvSpec


@reward(version=1, isolation="inline")
def length(completion: str) -> float:
    return float(len(completion))


@reward(version=1, isolation="inline")
def broken(completion: str, sums: str) -> float:
    raise RuntimeError("broke")


@verifier(version=1, isolation="inline")
def even(completion: str) -> Verdict:
    return Verdict(len(completion) % 2 == 0)


def part(name: str, spec: object = length, judged: bool = True) -> RunEnv:
    env = BoundEnv(EnvSpec(name, 1, lambda: None), "dist")
    bound = BoundReward(spec, "dist", alias=f"{name}.score", env=name)  # type: ignore[arg-type]
    judge = BoundVerifier(even, "dist", alias=f"{name}.even", env=name) if judged else None
    return RunEnv(env, (bound,), judge, (), (), 0.5)


ENVS = (part("words"), part("sums", judged=False))
MIXED = [Completion("a", env="words"), Completion("bb", env="words"), Completion("ccc", env="sums")]
MIXED.append(replace(MIXED[2], text="dddd"))


def batch_of(envs: tuple[RunEnv, ...], completions: list[Completion]) -> tuple[Batch, list[bool | None]]:
    rewards = [one for each in envs for one in each.rewards]
    plugins: list[BoundReward | BoundVerifier] = [*rewards, *(each.verifier for each in envs if each.verifier)]
    with Scorer(plugins) as scorer:
        outcomes = scores_by_env(scorer, envs, completions)
        right = [verdict.ok for verdict in verdicts_by_env(scorer, envs, completions)]
    advantages = advantages_of(outcomes, rewards, 2, BoundAdvantage(group_mean), torch.device("cpu"))
    return Batch(1, tuple(completions), outcomes, advantages, 2, 0.0, 0.0), right


def test_each_completion_is_scored_and_judged_by_its_own_environment() -> None:
    batch, right = batch_of(ENVS, MIXED)
    assert [one.score for one in batch.outcomes["words.score"]] == [1.0, 2.0, None, None]
    assert [one.score for one in batch.outcomes["sums.score"]] == [None, None, 3.0, 4.0]
    assert batch.outcomes["words.score"][2] == ELSEWHERE
    assert right == [False, True, None, None], "the sums have no verifier"


def test_a_reward_of_another_environment_moves_no_group() -> None:
    batch, _ = batch_of(ENVS, MIXED)
    alone, _ = batch_of(ENVS[:1], MIXED[:2])
    assert batch.advantages.totals.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert batch.advantages.values[:2].tolist() == alone.advantages.values.tolist()
    assert batch.advantages.trained.all()


def test_metrics_are_those_of_each_environments_own_completions() -> None:
    batch, right = batch_of(ENVS, MIXED)
    metrics = batch_metrics(batch, [one for each in ENVS for one in each.rewards])
    assert metrics["rewards/words.score/abstain"] == 0.0
    metrics = env_metrics(batch, ["words", "sums", "none"], right)
    assert (metrics["env/words/share"], metrics["env/words/reward"], metrics["env/words/accuracy"]) == (0.5, 1.5, 0.5)
    assert metrics["env/sums/reward"] == 3.5
    assert math.isnan(metrics["env/sums/accuracy"])
    assert metrics["env/none/share"] == 0.0
    assert math.isnan(metrics["env/none/reward"])


def test_an_environment_that_fails_stops_the_run_however_small_its_share() -> None:
    lost = [replace(one, finish_reason="error", info={"failure": "lost"}) for one in MIXED[2:]]
    batch, _ = batch_of(ENVS, [*MIXED[:2] * 4, *lost])
    with pytest.raises(RunError, match=r"2 of 2 rollouts of step 1 failed in their environment 'sums'.*lost"):
        stop_on_failures(batch, [one for each in ENVS for one in each.rewards], 0.5)


def test_a_reward_that_fails_on_all_of_its_environment_stops_the_run_whatever_the_others_do() -> None:
    envs = (ENVS[0], part("sums", broken))
    batch, _ = batch_of(envs, [*MIXED, *MIXED[:2]])
    rewards = [one for each in envs for one in each.rewards]
    with pytest.raises(RunError, match=r"'sums.score' \(dist\) failed on 2 of 2 completions"):
        stop_on_failures(batch, rewards, 0.5)
