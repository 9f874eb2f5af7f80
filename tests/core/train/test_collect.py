"""What a policy is trained on, made without a trainer: a real policy samples, real rewards score."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.plan import Plan
from grpo.core.rollout.synced import SyncedRollouts
from grpo.core.run.scoring import Scoring
from grpo.core.train.batch.metrics import length_metrics
from grpo.core.train.batch.tensors import counted
from grpo.core.train.collect import Collector
from grpo.core.train.sampling.sampler import PolicySampler

CPU = torch.device("cpu")
REWARDS = """
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def brittle(completion: str, *, share: float = 0.3) -> float | None:
    if sum(map(ord, completion)) % 100 < 100 * share:
        raise RuntimeError("cannot read this one")
    return None if len(completion) % 5 == 0 else len(completion) % 7 / 7
"""


@dataclass
class Made:
    plan: Plan
    sampler: PolicySampler
    scoring: Scoring
    tokenizer: Any
    model: Any

    def collector(self) -> Collector:
        ends = (self.tokenizer.eos_token_id,)
        return Collector(
            self.plan, self.sampler, self.scoring, end_ids=ends, pad_id=self.tokenizer.pad_token_id, device=CPU
        )


@pytest.fixture
def made(tiny_model: Path, tmp_path: Path) -> Iterator[Made]:
    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.core.policy.load import load_model, load_tokenizer
    from grpo.core.rollout.hf.sampler import HfRollouts
    from grpo.core.rollout.players import players_of
    from grpo.core.rollout.types import sampling_params
    from grpo.plugins.host import Host

    (tmp_path / "mine.py").write_text(REWARDS)
    tree = {
        "env": "gsm8k",
        "dataset": "embedded",
        "model": str(tiny_model),
        "rewards": [f"{tmp_path}/mine.py:brittle"],
        "out": str(tmp_path / "run"),
        "train": {"limit": 8, "prompts_per_step": 4, "group_size": 4},
        "rollout": {"max_completion_length": 12},
        "failures": {"stop_share": 0.9, "retries": 0},
        "evaluation": {"size": 0},
    }
    plan = make_plan(parse_config(tree), Host.discover())
    tokenizer, model = load_tokenizer(str(tiny_model)), load_model(str(tiny_model), "float32")
    with closing(Scoring(plan, lambda text: None)) as scoring:
        sampler = PolicySampler(
            SyncedRollouts(HfRollouts(), lambda: nullcontext(model)),
            players_of(plan.envs, plan.config.rollout, tokenizer),
            tokenizer,
            sampling_params(plan.config.rollout, (tokenizer.eos_token_id,), tokenizer.pad_token_id),
            scoring.begin,
            0,
        )
        torch.manual_seed(0)
        yield Made(plan, sampler, scoring, tokenizer, model)


@pytest.mark.slow
def test_a_failure_leaves_the_loss_an_abstention_has_no_advantage_and_neither_is_a_zero(made: Made) -> None:
    episodes = [episode for episode in made.plan.train[:4] for _ in range(4)]
    found = made.collector().collect(episodes, 3, again=False)
    outcomes = found.batch.outcomes["brittle"]
    kinds = [outcome.kind for outcome in outcomes]
    assert {"failure", "abstain", "score"} == set(kinds)
    assert found.batch.step == 3
    assert [one.row for one in found.batch.completions] == [episode.row for episode in episodes]
    masks, advantages = found.tensors["completion_mask"].sum(dim=1), found.tensors["advantages"]
    for number, kind in enumerate(kinds):
        assert (masks[number] == 0) == (kind == "failure")
        assert kind == "score" or advantages[number] == 0
    scores = [outcome.score for outcome in outcomes if outcome.score is not None]
    assert found.metrics["rewards/brittle/mean"] == pytest.approx(sum(scores) / len(scores))
    assert found.metrics["rewards/brittle/failure"] == kinds.count("failure") / 16
    assert found.tensors["num_items_in_batch"] == counted(found.tensors).sum()


def test_the_tensors_are_what_was_sampled_and_what_failed_is_masked(made: Made) -> None:
    episodes = [episode for episode in made.plan.train[:4] for _ in range(4)]
    found = made.collector().collect(episodes, 1, again=False)
    lengths = [len(one.token_ids) for one in found.batch.completions]
    for row, one in enumerate(found.batch.completions):
        assert found.tensors["completion_ids"][row, : lengths[row]].tolist() == list(one.token_ids)
        sampled = found.tensors["sampling_per_token_logps"][row, : lengths[row]]
        assert torch.equal(sampled, torch.tensor(one.logprobs))
    failed = [outcome.kind == "failure" for outcome in found.batch.outcomes["brittle"]]
    assert set(failed) == {True, False}
    assert (found.tensors["completion_mask"].sum(dim=1) == 0).tolist() == failed
    assert found.tokens == found.tensors["prompt_mask"].sum() + sum(lengths)
    assert found.metrics["completions/mean_length"] == pytest.approx(sum(lengths) / 16)
    assert found.staleness == 0


def test_lengths_of_completions_that_were_all_cut_have_no_mean_of_those_that_ended() -> None:
    cut = length_metrics([3, 5], [False, False])
    assert cut["completions/clipped_ratio"] == 1.0
    assert cut["completions/mean_terminated_length"] == 0.0
    mixed = length_metrics([3, 5, 9], [True, False, True])
    assert mixed["completions/mean_terminated_length"] == 6.0
    assert math.isclose(mixed["completions/clipped_ratio"], 1 / 3, rel_tol=1e-6)
