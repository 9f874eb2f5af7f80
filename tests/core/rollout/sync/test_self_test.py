"""The known change of the self-test: large enough to be seen, of what is served, and never of the policy itself."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.rollout.sync.self_test import SHARE, open_prompt, perturbed


@pytest.fixture(scope="module")
def policy(tied_model: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tied_model).train()


@pytest.fixture(scope="module")
def adapted(policy: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(copy.deepcopy(policy), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"]))


def rms(tensor: torch.Tensor) -> float:
    return float(tensor.detach().float().pow(2).mean().sqrt())


def values(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def test_the_embedding_is_among_the_changed_weights_and_the_policy_gets_its_own_back(policy: Any) -> None:
    before = values(policy)
    with perturbed(policy) as names:
        changed = values(policy)
    assert "model.embed_tokens.weight" in names
    assert len(names) == 2
    for name, tensor in changed.items():
        off = rms(tensor - before[name])
        assert off == (pytest.approx(SHARE * rms(before[name]), rel=0.05) if name in names else 0.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in values(policy).items())


def test_the_policy_gets_its_own_weights_back_whatever_happens_meanwhile(policy: Any) -> None:
    before = values(policy)
    with pytest.raises(KeyboardInterrupt), perturbed(policy):
        raise KeyboardInterrupt
    assert all(torch.equal(tensor, before[name]) for name, tensor in values(policy).items())


def test_the_change_is_the_same_each_time_so_that_a_second_try_compares_with_the_first(policy: Any) -> None:
    with perturbed(policy):
        one = values(policy)
    with perturbed(policy):
        assert all(torch.equal(tensor, one[name]) for name, tensor in values(policy).items())


def test_with_an_adapter_only_its_b_changes_by_as_much_as_the_frozen_weight_is_large(adapted: Any) -> None:
    before = values(adapted)
    with perturbed(adapted) as names:
        assert len(names) == 4  # two layers, two modules
        changed = values(adapted)
    assert {name for name, tensor in changed.items() if not torch.equal(tensor, before[name])} == set(names)
    for name in names:
        module = adapted.get_submodule(name.partition(".lora_B.")[0])
        delta = module.scaling["default"] * changed[name] @ module.lora_A["default"].weight  # B was zero
        assert rms(delta) == pytest.approx(SHARE * rms(module.get_base_layer().weight), rel=0.3)


@pytest.mark.parametrize("which", ["policy", "adapted"])
def test_logits_are_far_away_under_the_change_and_exactly_the_same_after_it(
    which: str, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(which)
    ids = torch.tensor([[5, 9, 17, 3]])
    with torch.no_grad():
        plain = model(input_ids=ids).logits
        with perturbed(model):
            assert (model(input_ids=ids).logits - plain).abs().max() > 0.1
        assert torch.equal(model(input_ids=ids).logits, plain)


def test_the_prompt_is_one_that_the_policy_is_unsure_about(policy: Any) -> None:
    prompt = open_prompt(policy, 12)
    assert len(prompt) == 12
    assert policy.training, "it was put back"

    def entropy(ids: list[int]) -> float:
        policy.eval()
        with torch.no_grad():
            logprobs = policy(input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        policy.train()
        return float(-(logprobs.exp() * logprobs).sum())

    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(policy.config.vocab_size, (8, 12), generator=generator).tolist()
    assert entropy(prompt) == pytest.approx(max(map(entropy, drawn)), rel=1e-5)
