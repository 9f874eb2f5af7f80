"""An adapter that is folded into the weights while a policy samples: the same samples, the same weights after it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_families import SIZES
from transformers import AutoModelForCausalLM, LlamaConfig

from grpo.core.rollout.hf.merged_lora import folded
from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.types import SamplingParams

CONFIG = LlamaConfig(**SIZES, tie_word_embeddings=True)
IDS = torch.arange(2, 14)[None]
LINEAR = ["q_proj", "v_proj", "down_proj"]


def adapted(dtype: torch.dtype = torch.float32, targets: list[str] = LINEAR, **options: Any) -> Any:
    torch.manual_seed(0)
    plain = AutoModelForCausalLM.from_config(CONFIG, dtype=dtype)
    model: Any = get_peft_model(plain, LoraConfig(r=4, target_modules=targets, init_lora_weights=False, **options))
    return model.eval()


def adapters_work(model: Any) -> bool:
    """Returns whether some product with an adapter's matrix is still made."""
    made: list[str] = []
    hooks = [
        module.register_forward_hook(lambda *_, name=name: made.append(name))
        for name, module in model.named_modules()
        if ".lora_A." in name
    ]
    with torch.no_grad():
        model(input_ids=IDS)
    for hook in hooks:
        hook.remove()
    return bool(made)


def test_the_policy_computes_the_same_without_a_product_of_its_adapter() -> None:
    model = adapted()
    with torch.no_grad():
        before = model(input_ids=IDS).logits
        with model.disable_adapter():
            assert (model(input_ids=IDS).logits - before).abs().max() > 0.1
        with folded(model):
            assert not adapters_work(model)
            torch.testing.assert_close(model(input_ids=IDS).logits, before, rtol=1e-4, atol=1e-4)
    assert adapters_work(model)


@pytest.mark.parametrize("fails", [False, True])
def test_the_frozen_weights_are_back_bit_for_bit(fails: bool) -> None:
    model = adapted()
    before = copy.deepcopy(model.state_dict())
    places = {name: weight.data_ptr() for name, weight in model.named_parameters()}
    try:
        with folded(model):
            if fails:
                raise RuntimeError("sampling failed")
    except RuntimeError:
        pass
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert places == {name: weight.data_ptr() for name, weight in model.named_parameters()}
    assert not any(getattr(module, "merged_adapters", []) for module in model.modules())


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda: adapted(torch.bfloat16), id="rounds-the-adapter-away"),
        pytest.param(lambda: adapted(use_dora=True), id="more-than-a-sum"),
        pytest.param(
            lambda: adapted(targets=["lm_head"]),
            id="shares-its-weight-with-the-embedding",
            marks=pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`"),
        ),
    ],
)
def test_what_cannot_be_folded_is_left_alone(model: Any) -> None:
    policy = model()
    with folded(policy):
        assert adapters_work(policy)


def test_samples_are_those_of_the_adapter() -> None:
    model = adapted()
    params = SamplingParams(max_tokens=12, eos_ids=(), pad_id=0, temperature=0)
    (found,) = sample(model, [IDS[0].tolist()], params)
    whole = torch.cat([IDS[0], torch.tensor(found.token_ids)])[None]
    with torch.no_grad():
        logprobs = model(input_ids=whole).logits.log_softmax(dim=-1)[0, len(IDS[0]) - 1 : -1]
    expected = logprobs.gather(1, torch.tensor(found.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(found.logprobs), expected, rtol=1e-4, atol=1e-4)
    assert logprobs.argmax(dim=1).tolist() == list(found.token_ids)
