"""Each layer of the proof catches what the others cannot see, with an engine that is a second copy of the policy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_bench import PARAMS, TOLERANCE, base_model, gap, move, prompts_of, rollouts_of, sync_with

from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.sync.payload import TIED_HEAD, fingerprint, probe, weight_stream
from grpo.core.rollout.types import OnDone, Sampled, SamplingParams
from grpo.plugins.errors import RunError

Named = tuple[str, torch.Tensor]


class SecondCopy:
    """An engine: a model of transformers with weights of its own, which samples as the policy itself does."""

    context, block, lora = 512, 16, False

    def __init__(self, folder: Path) -> None:
        self.model = base_model(folder)

    def epoch(self) -> int:
        return 1

    def put_weights(self, weights: Iterable[Named]) -> None:
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in weights:
                if name != TIED_HEAD or name in own:
                    own[name].copy_(tensor)

    def fingerprints(self, seed: int) -> Mapping[str, int]:
        return {name: fingerprint(probe(tensor, seed)) for name, tensor in weight_stream(self.model)}

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        return [
            self.with_most_probable(*pair, params.most_probable)
            for pair in zip(prompts, sample(self.model, prompts, params, on_done), strict=True)
        ]

    def with_most_probable(self, prompt: Sequence[int], sampled: Sampled, count: int) -> Sampled:
        with torch.no_grad():
            logits = self.model(torch.tensor([[*prompt, *sampled.token_ids]])).logits[0, len(prompt) - 1 : -1]
        found = logits.log_softmax(-1).topk(count)
        pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
        return replace(sampled, most_probable=tuple(tuple(zip(*pair, strict=True)) for pair in pairs))

    def handed(self) -> Mapping[str, Any]:
        return {}

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name not in ("forget", "reset_prefix_cache", "wake", "sleep", "close"):
            raise AttributeError(name)
        return lambda: None


@pytest.fixture
def link(tied_model: Path) -> SecondCopy:
    return SecondCopy(tied_model)


def without(pairs: Iterable[Named], left_out: str) -> Iterator[Named]:
    return ((name, tensor) for name, tensor in pairs if name != left_out)


def test_an_engine_that_takes_everything_is_proven_and_samples_as_the_policy(
    link: SecondCopy, tied_model: Path
) -> None:
    model, rollouts = base_model(tied_model), rollouts_of(link)
    prompts = prompts_of([3, 20])
    for _ in range(2):
        metrics = rollouts.sync(model)
        assert "sync/repeated" not in metrics
        assert metrics["sync/spot_difference"] < TOLERANCE
        assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE
        move(model, 0.02)


@pytest.mark.parametrize("sure", [0.05, 1.0, 30.0, 1000.0])
def test_the_proof_does_not_depend_on_how_sure_the_policy_is(link: SecondCopy, tied_model: Path, sure: float) -> None:
    """A sure policy gives what it samples a probability of 1, with its own weights and with others."""

    def as_sure(model: Any) -> Any:
        with torch.no_grad():
            model.model.norm.weight.mul_(sure)
        return model

    model = as_sure(base_model(tied_model))
    assert rollouts_of(link).sync(model)["sync/spot_difference"] < TOLERANCE
    believed = copy.deepcopy(link)
    as_sure(link.model)
    link.put_weights = believed.put_weights  # type: ignore[method-assign]
    link.fingerprints = believed.fingerprints  # type: ignore[method-assign]
    with pytest.raises(RunError, match="a test change of the weights"):
        rollouts_of(link).sync(model)


def test_a_weight_that_hardly_moved_and_did_not_arrive_is_named_by_its_fingerprint(
    link: SecondCopy, tied_model: Path
) -> None:
    model, rollouts = base_model(tied_model), rollouts_of(link)
    rollouts.sync(model)
    name = "model.norm.weight"
    with torch.no_grad():
        model.get_parameter(name).mul_(1 + 1e-6)
    put = link.put_weights
    link.put_weights = lambda weights: put(without(weights, name))  # type: ignore[method-assign]
    with pytest.raises(RunError, match=f"not those that were handed over: {name}"):
        rollouts.sync(model)


def test_an_engine_that_takes_nothing_and_says_otherwise_fails_before_the_first_step(
    link: SecondCopy, tied_model: Path
) -> None:
    """Its weights are those of its file, and so are the policy's: only a change shows that nothing arrives."""
    model = base_model(tied_model)
    believed = copy.deepcopy(link)
    link.put_weights = believed.put_weights  # type: ignore[method-assign]
    link.fingerprints = believed.fingerprints  # type: ignore[method-assign]
    with pytest.raises(RunError, match="a test change of the weights"):
        rollouts_of(link).sync(model)


@pytest.mark.parametrize("logprob", [float("nan"), -30.0], ids=["no number", "another"])
def test_an_engine_whose_log_probabilities_are_others_fails_the_spot_check(
    link: SecondCopy, tied_model: Path, logprob: float
) -> None:
    model, rollouts = base_model(tied_model), rollouts_of(link)

    def generate(*arguments: Any) -> list[Sampled]:
        done = link.generate(*arguments)
        return [Sampled(one.token_ids, (logprob,) * len(one.logprobs), one.finish_reason) for one in done]

    with pytest.raises(RunError, match="does not serve the policy's weights"):
        sync_with(rollouts, link, model, 0.02, generate=generate)


def test_a_fault_that_does_not_come_back_is_repaired_by_a_second_full_sync(link: SecondCopy, tied_model: Path) -> None:
    model, rollouts = base_model(tied_model), rollouts_of(link)
    rollouts.sync(model)
    move(model, 0.02)
    put, handings = link.put_weights, iter(["model.norm.weight"])
    link.put_weights = lambda weights: put(without(weights, next(handings, "")))  # type: ignore[method-assign]
    assert rollouts.sync(model)["sync/repeated"] == 1.0
    prompts = prompts_of([10])
    assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE
