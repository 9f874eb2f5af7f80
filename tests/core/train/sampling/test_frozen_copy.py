"""A frozen copy computes what the policy computed when it was taken, whatever becomes of the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.train.sampling.ahead_queue import FrozenCopies
from grpo.core.train.update.head import attach_logps

IDS = torch.arange(12).view(2, 6)


def policy(path: Path, *, adapter: bool) -> Any:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path)
    if not adapter:
        return model
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    return get_peft_model(model, lora)


def inner(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") else model


def computed(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns logits and log-probabilities: a model may be called for either."""
    with torch.no_grad():
        return model(input_ids=IDS).logits, model(input_ids=IDS, logp_labels=IDS)["logps"]


@pytest.mark.parametrize("adapter", [False, True])
def test_a_copy_stays_as_the_policy_was_and_takes_the_weights_of_the_next_version(
    tiny_model: Path, adapter: bool
) -> None:
    model = policy(tiny_model, adapter=adapter)
    attach_logps(inner(model), 1.0)
    model.eval()
    copies = FrozenCopies(lambda: model, lambda made: attach_logps(inner(made), 1.0))
    before, copy = computed(model), copies.take()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(0.05)
    after = computed(model)
    assert not any(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(computed(copy), before, strict=True))
    assert not copy.training
    second = copies.take()
    assert second is not copy, "a copy in use was written over"
    copies.give_back(copy)
    assert copies.take() is copy
    for version in (copy, second):
        assert all(torch.equal(one, other) for one, other in zip(computed(version), after, strict=True))


def test_the_frozen_weights_of_an_adapter_are_not_copied(tiny_model: Path) -> None:
    model = policy(tiny_model, adapter=True)
    copy = FrozenCopies(lambda: model, lambda made: None).take()
    for (name, own), other in zip(model.named_parameters(), copy.parameters(), strict=True):
        assert (own is other) == (".lora_" not in name)
