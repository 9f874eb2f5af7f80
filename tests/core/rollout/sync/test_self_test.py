"""The known change of the self-test: large enough to be seen, of what is served, and never of the policy itself."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.rollout.sync.self_test import SHARE, open_prompt, perturbed, perturbed_logits


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


def test_the_embedding_is_among_the_changed_weights_and_the_policy_stays_as_it_is(policy: Any) -> None:
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    changed = perturbed(policy)
    assert "model.embed_tokens.weight" in changed
    assert len(changed) == 2
    for name, tensor in changed.items():
        assert rms(tensor - before[name]) == pytest.approx(SHARE * rms(before[name]), rel=0.05)
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())


def test_the_change_is_the_same_each_time_so_that_a_second_try_compares_with_the_first(policy: Any) -> None:
    one, two = perturbed(policy), perturbed(policy)
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())


def test_with_an_adapter_only_its_b_changes_by_as_much_as_the_frozen_weight_is_large(adapted: Any) -> None:
    changed = perturbed(adapted)
    assert len(changed) == 4  # two layers, two modules
    for name, b in changed.items():
        module = adapted.get_submodule(name.partition(".lora_B.")[0])
        delta = module.scaling["default"] * b @ module.lora_A["default"].weight  # B was zero
        assert rms(delta) == pytest.approx(SHARE * rms(module.get_base_layer().weight), rel=0.3)


@pytest.mark.parametrize("which", ["policy", "adapted"])
def test_logits_are_computed_with_the_changed_weights_and_without_writing_them(
    which: str, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(which)
    ids = torch.tensor([[5, 9, 17, 3]])
    with torch.no_grad():
        plain = model(input_ids=ids).logits
        assert torch.equal(perturbed_logits(model, ids, {}), plain)
        assert (perturbed_logits(model, ids, perturbed(model)) - plain).abs().max() > 0.1
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
