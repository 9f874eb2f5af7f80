"""Layers that compute faster while a policy is trained: the same numbers, and a model that is as it was after it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig

from grpo.core.train.update.layers import faster_layers

CONFIG = LlamaConfig(  # the matrices of the MLP and the head are large enough to gain
    vocab_size=1024,
    hidden_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=1024,
    initializer_range=0.1,
    tie_word_embeddings=True,
)
TARGETS = ["q_proj", "v_proj", "up_proj", "down_proj"]
IDS = torch.arange(2, 42).view(2, 20)


def policy(lora: dict[str, Any] | None = None, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(CONFIG, dtype=dtype)
    if lora is None:
        return model.train()
    return get_peft_model(model, LoraConfig(r=4, target_modules=TARGETS, init_lora_weights=False, **lora)).train()


def learned(model: Any) -> dict[str, torch.Tensor]:
    """The loss and all gradients of a pass over IDS."""
    model.zero_grad()
    loss = model(input_ids=IDS, labels=IDS).loss
    loss.backward()
    return {"loss": loss.detach(), **{n: p.grad for n, p in model.named_parameters() if p.grad is not None}}


def faster(model: Any) -> set[str]:
    """The last names of the layers that were changed."""
    with faster_layers(model):
        return {name.split(".")[-1] for name, module in model.named_modules() if "forward" in vars(module)}


@pytest.mark.parametrize("lora", [None, {}, {"use_rslora": True}], ids=["full", "lora", "rslora"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_pass_learns_the_same(lora: dict[str, Any] | None, checkpointing: bool) -> None:
    model = policy(lora)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    wanted = copy.deepcopy(learned(model))
    with faster_layers(model):
        assert any("forward" in vars(module) for module in model.modules())
        found = learned(model)
    assert found.keys() == wanted.keys()
    for name, tensor in found.items():
        largest = wanted[name].abs().max().item()
        torch.testing.assert_close(tensor, wanted[name], rtol=1e-4, atol=1e-4 * largest, msg=name)
    assert not any("forward" in vars(module) for module in model.modules())


def test_the_layers_that_gain_are_those_with_an_adapter_and_large_ones() -> None:
    assert faster(policy()) == {"gate_proj", "up_proj", "down_proj", "lm_head"}
    assert faster(policy({})) == {*TARGETS, "gate_proj", "lm_head"}


def test_a_pass_that_fails_leaves_the_model_as_it_was() -> None:
    model = policy({})
    with pytest.raises(RuntimeError, match="broke"), faster_layers(model):
        raise RuntimeError("it broke")
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("part", ["up_proj", "up_proj.base_layer", "up_proj.lora_A.default"])
def test_what_others_changed_is_left_alone(part: str) -> None:
    model = policy({})
    layer = model.get_base_model().model.layers[0].mlp.get_submodule(part)
    moved = layer.forward
    called: list[int] = []

    def move(x: torch.Tensor) -> torch.Tensor:  # as libraries do that move weights about
        called.append(1)
        found: torch.Tensor = moved(x)
        return found

    vars(layer)["forward"] = move
    with faster_layers(model):
        assert vars(layer)["forward"] is move
        learned(model)
    assert vars(layer)["forward"] is move
    assert called == [1]
    del vars(layer)["forward"]
    called.clear()
    layer.register_forward_hook(lambda *_: called.append(1))
    with faster_layers(model):
        learned(model)
    assert called == [1]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_an_adapter_under_autocast_computes_the_same_of_an_input_that_is_kept_once(checkpointing: bool) -> None:
    model = policy({}, dtype=torch.bfloat16)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    kept = dict.fromkeys(("as it comes", "faster"), 0)

    def pass_over(name: str) -> dict[str, torch.Tensor]:
        storages: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        with torch.autocast("cpu", torch.bfloat16):
            found = copy.deepcopy(learned(model))
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                model(input_ids=IDS)
        kept[name] = sum(storage.nbytes() for storage in storages.values())
        return found

    wanted = pass_over("as it comes")
    with faster_layers(model):
        found = pass_over("faster")
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    shared = CONFIG.num_hidden_layers * IDS.numel() * CONFIG.hidden_size * 2  # bytes, of queries and values
    assert checkpointing or kept["as it comes"] - kept["faster"] == shared


def test_other_precisions_are_computed_as_they_were() -> None:
    assert faster(policy(dtype=torch.bfloat16)) == set()
    model = policy({}, dtype=torch.bfloat16)
    wanted, found = both_ways(model)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    model = policy({})
    with torch.autocast("cpu", torch.bfloat16):
        wanted = copy.deepcopy(learned(model))
        with faster_layers(model):
            found = learned(model)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def both_ways(model: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """What a pass as it comes learns, and a faster one."""
    torch.manual_seed(1)
    plain = copy.deepcopy(learned(model))
    torch.manual_seed(1)
    with faster_layers(model):
        return plain, learned(model)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad(), faster_layers(model):
        found: torch.Tensor = model(input_ids=IDS).logits
    return found


@pytest.mark.filterwarnings("ignore:.*lora_bias")
@pytest.mark.parametrize("lora", [{"lora_dropout": 0.5}, {"use_dora": True}, {"lora_bias": True}], ids=str)
def test_adapters_that_are_more_than_a_sum_are_computed_by_peft(lora: dict[str, Any]) -> None:
    model = policy(lora)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "magnitude" in name or name.endswith("lora_B.default.bias"):
                parameter.add_(1.0)
    plain, fast = both_ways(model)
    for name, tensor in fast.items():
        torch.testing.assert_close(tensor, plain[name], rtol=1e-4, atol=1e-4 * plain[name].abs().max().item())
    assert (plain["loss"] - learned(policy({}))["loss"]).abs() > 1e-3, "the adapter is a plain one"


def test_an_adapter_that_is_off_counts_no_more() -> None:
    model = policy({})
    with model.disable_adapter():
        off = logits(model)
    torch.testing.assert_close(off, logits(policy()))
    assert (off - logits(model)).abs().max() > 0.1


def test_an_adapter_that_is_folded_in_counts_once() -> None:
    model = policy({})
    before = logits(model)
    model.merge_adapter()
    torch.testing.assert_close(logits(model), before, rtol=1e-3, atol=1e-3)


def test_several_adapters_count_together() -> None:
    model = policy({})
    one = learned(model)["loss"]
    model.add_adapter("other", LoraConfig(r=2, target_modules=TARGETS, init_lora_weights=False))
    model.base_model.set_adapter(["default", "other"])
    plain, fast = both_ways(model)
    torch.testing.assert_close(fast["loss"], plain["loss"])
    assert abs(one - fast["loss"]) > 1e-3


def test_after_a_while_of_no_gradients_there_are_still_none() -> None:
    model = policy({})
    with torch.no_grad(), faster_layers(model):
        assert not model(input_ids=IDS).logits.requires_grad
