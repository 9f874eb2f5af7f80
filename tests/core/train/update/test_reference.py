"""The frozen policy of the KL term: a model of its own, no adapter, or the adapter as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.train.batch.tensors import Tensors
from grpo.core.train.update.forward import REFERENCE, reference_logps

IDS = torch.tensor([[5, 9, 30, 7]])


def logits(model: Any, tensors: Tensors) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=tensors["completion_ids"]).logits
    return found


@pytest.fixture
def adapted(tiny_model: Path) -> Any:
    """The tiny policy with an adapter that does something."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    return model.eval()


def test_a_model_of_its_own_is_asked(tiny_model: Path, adapted: Any) -> None:
    from transformers import AutoModelForCausalLM

    frozen = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    asked = reference_logps(logits, {"completion_ids": IDS}, frozen=frozen, wrapped=adapted, policy=adapted)
    assert torch.equal(asked, logits(frozen, {"completion_ids": IDS}))


def test_a_fresh_adapter_is_left_out_and_comes_back(tiny_model: Path, adapted: Any) -> None:
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    before = logits(adapted, {"completion_ids": IDS})
    found = reference_logps(logits, {"completion_ids": IDS}, frozen=None, wrapped=adapted, policy=adapted)
    torch.testing.assert_close(found, logits(base, {"completion_ids": IDS}))
    assert not torch.allclose(found, before)
    assert torch.equal(logits(adapted, {"completion_ids": IDS}), before)


def test_a_warmed_up_adapter_has_a_copy_that_stays_while_it_trains(adapted: Any) -> None:
    from peft import LoraConfig

    adapted.add_adapter(REFERENCE, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    trained = {name: p.requires_grad for name, p in adapted.named_parameters()}
    before = logits(adapted, {"completion_ids": IDS})
    found = reference_logps(logits, {"completion_ids": IDS}, frozen=None, wrapped=adapted, policy=adapted)
    assert not torch.allclose(found, before)
    assert adapted.active_adapter == "default"
    assert torch.equal(logits(adapted, {"completion_ids": IDS}), before)
    assert {name: p.requires_grad for name, p in adapted.named_parameters()} == trained
