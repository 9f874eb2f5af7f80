"""Weights that are laid out for products of few rows: the same products, and a layer that is as it was after them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from grpo.core.rollout.hf.faster_layers import LEAST, gains, product
from grpo.core.rollout.hf.merged_lora import folded

LARGE: dict[str, Any] = {  # all matrices but those of keys and values are large enough to gain
    "vocab_size": 1024,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
}
IDS = torch.arange(2, 14)[None]


def linear(bias: bool = False, dtype: torch.dtype = torch.float32, width: int = 512) -> torch.nn.Linear:
    torch.manual_seed(0)
    layer = torch.nn.Linear(width, LEAST // 512, bias=bias, dtype=dtype)
    return layer.requires_grad_(False)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1,), (3,), (16,), (200,), (4, 5), (0,)])
def test_products_are_the_same_for_any_number_of_rows(shape: tuple[int, ...], bias: bool) -> None:
    layer, rows = linear(bias), torch.randn(*shape, 512)
    before, times = layer(rows), product(layer)
    torch.testing.assert_close(times(rows), before, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(times(rows.bfloat16()), before.bfloat16(), rtol=0.1, atol=0.1)
    if len(shape) == 2:
        torch.testing.assert_close(times(rows.transpose(0, 1)), before.transpose(0, 1), rtol=1e-5, atol=1e-5)


class Doubled(torch.nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(rows)


def test_what_does_not_gain_or_is_more_than_a_product_is_left_alone() -> None:
    moved, hooked = linear(), linear()
    vars(moved)["forward"] = lambda rows: rows  # as libraries do that move weights about
    hooked.register_forward_hook(lambda *_: None)
    assert gains(linear())
    assert not gains(linear(dtype=torch.bfloat16))
    assert not gains(linear(width=256))
    assert not gains(linear().to("meta"))
    assert not gains(Doubled(512, LEAST // 512))
    assert not gains(torch.nn.Embedding(512, 512))
    assert not gains(moved)
    assert not gains(hooked)


@pytest.mark.parametrize("fails", [False, True])
def test_a_changed_weight_counts_as_soon_as_it_is_over(fails: bool) -> None:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(LlamaConfig(**LARGE), dtype=torch.float32).eval()
    with torch.no_grad():
        before = model(input_ids=IDS).logits
        with contextlib.suppress(RuntimeError), folded(model, packs=True):
            if fails:
                raise RuntimeError("sampling failed")
        assert not any("forward" in vars(module) for module in model.modules())
        for weight in model.parameters():
            weight.mul_(1.5)
        assert (model(input_ids=IDS).logits - before).abs().max() > 0.1


@pytest.mark.parametrize("kind", [LlamaConfig, Qwen2Config, Qwen3Config])
@pytest.mark.parametrize("lora", [False, True])
def test_a_model_computes_the_same_and_only_one_copy_of_its_weights_is_made(lora: bool, kind: Any) -> None:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(kind(**LARGE), dtype=torch.float32).eval()
    if lora:
        config = LoraConfig(r=4, target_modules=["q_proj", "down_proj", "up_proj"], init_lora_weights=False)
        model = get_peft_model(model, config).eval()
    places = {name: weight.data_ptr() for name, weight in model.named_parameters()}
    own = {name for name in places if name.endswith(".base_layer.weight")}
    with torch.no_grad():
        before = model(input_ids=IDS).logits
        with folded(model, packs=True):
            if lora:
                held = {name for name, weight in model.named_parameters() if weight.numel()}
                assert not held & own, "a second copy was kept"
            changed = [name for name, module in model.named_modules() if "forward" in vars(module)]
            assert sum(name.endswith(("lm_head", ".o_proj", ".down_proj", ".base_layer")) for name in changed) == 5
            assert sum(name.endswith((".self_attn", ".mlp")) for name in changed) == 4
            torch.testing.assert_close(model(input_ids=IDS).logits, before, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model(input_ids=IDS).logits, before)
    assert {name: weight.data_ptr() for name, weight in model.named_parameters()} == places


def test_taking_the_adapter_off_meanwhile_fails_and_leaves_the_frozen_weights_alone() -> None:
    torch.manual_seed(0)
    plain = AutoModelForCausalLM.from_config(LlamaConfig(**LARGE), dtype=torch.float32)
    model: Any = get_peft_model(plain, LoraConfig(r=4, target_modules=["down_proj"], init_lora_weights=False)).eval()
    frozen = {name: weight.clone() for name, weight in model.named_parameters()}
    with pytest.raises(RuntimeError), torch.no_grad(), folded(model, packs=True), model.disable_adapter():
        model(input_ids=IDS)
    assert all(torch.equal(weight, frozen[name]) for name, weight in model.named_parameters())
