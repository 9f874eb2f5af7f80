"""Fewer calls for a decoding step: the same numbers in each family, and models that are left as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_families import SIZES, YARN
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from grpo.core.policy.attention import without_copies
from grpo.core.policy.modules import cache_argument
from grpo.core.rollout.hf.merged_lora import folded

CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**SIZES),
    "llama-biases": lambda: LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama-gelu": lambda: LlamaConfig(**SIZES, hidden_act="gelu"),
    "llama-yarn": lambda: LlamaConfig(**SIZES, rope_parameters=YARN),
    "qwen2": lambda: Qwen2Config(**SIZES),
    "qwen3": lambda: Qwen3Config(**SIZES, head_dim=12),
}
IDS = torch.arange(2, 26).view(2, 12)
MASK = torch.ones_like(IDS).index_put_((torch.tensor([0, 0]), torch.tensor([0, 1])), torch.tensor(0))
KINDS = ("norm", "self_attn", "mlp", "model")  # the ends of the names of what computes otherwise


def policy(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    for name, weight in model.named_parameters():
        if "norm" in name or "bias" in name:  # else ones and zeros, which show nothing
            weight.data.normal_(1.0, 0.3)
    return model


def mixed(model: Any) -> Any:
    model.model.norm.float()
    return model


def adapted(model: Any, targets: list[str]) -> Any:
    return get_peft_model(model, LoraConfig(r=4, target_modules=targets, init_lora_weights=False)).eval()


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    """Of a prefill with padding, and of two more tokens, one at a time."""
    cache = DynamicCache(config=model.config)
    positions = (MASK.cumsum(dim=1) - 1).clamp(min=0)
    mask, found = MASK, []
    step = {"input_ids": IDS, "position_ids": positions}
    for token in (30, 31, 32):
        output = model(**step, attention_mask=mask, use_cache=True, **{cache_argument(model): cache})
        found.append(output.logits[:, -1])
        positions = positions[:, -1:] + 1
        mask = torch.cat([mask, torch.ones(2, 1, dtype=torch.long)], dim=1)
        step = {"input_ids": torch.full((2, 1), token), "position_ids": positions}
    return torch.stack(found)


def changed(model: Any) -> set[str]:
    """The names of the modules that compute otherwise while a policy samples."""
    with folded(model, packs=True):
        return {name for name, module in model.named_modules() if "forward" in vars(module)}


@pytest.mark.parametrize(
    "targets", [[], ["q_proj", "up_proj"], ["k_proj", "o_proj", "down_proj", "gate_proj"]], ids=str
)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_policy_computes_the_same_in_fewer_calls(name: str, targets: list[str]) -> None:
    model = policy(CONFIGS[name]())
    if targets:
        model = adapted(model, targets)
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    wanted = logits(model)
    with without_copies(model), folded(model, packs=True):
        torch.testing.assert_close(logits(model), wanted, rtol=1e-4, atol=1e-4)
    own = {name for name, _ in model.named_modules() if name.endswith(KINDS)}
    assert changed(model) == own - {"base_model", "base_model.model"}  # of the adapter
    assert not any("forward" in vars(module) for module in model.modules())
    assert all(torch.equal(state[key], tensor) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize("targets", [[], ["q_proj", "up_proj"]], ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_policy_of_lower_precision_rounds_where_its_model_does(name: str, targets: list[str]) -> None:
    model = policy(CONFIGS[name](), torch.bfloat16)
    if targets:
        model = adapted(model, targets)
    wanted = logits(model)
    with folded(model, packs=True):
        assert torch.equal(logits(model), wanted)
    own = {name for name, _ in model.named_modules() if name.endswith(KINDS)}
    assert changed(model) == own - {"base_model", "base_model.model"}


def test_every_call_of_a_joined_layer_is_one_product() -> None:
    model, made = policy(CONFIGS["llama"]()), []
    with folded(model, packs=True):
        for name, module in model.named_modules():
            if name.endswith("_proj"):
                module.register_forward_hook(lambda *_, name=name: made.append(name))
        logits(model)
    assert {name.split(".")[-1] for name in made} == {"o_proj", "down_proj"}


@pytest.mark.parametrize("part", ["self_attn", "self_attn.k_proj", "mlp", "mlp.up_proj", "input_layernorm"])
def test_what_others_watch_or_replace_is_left_alone(part: str) -> None:
    model, seen = policy(CONFIGS["llama"]()), []
    for layer in model.model.layers:
        layer.get_submodule(part).register_forward_hook(lambda *_: seen.append(part))
    with folded(model, packs=True):
        logits(model)
    assert len(seen) == 6, "two layers, three passes"
    assert not any(name.endswith(part.split(".")[0]) for name in changed(model))


def test_a_layer_that_others_watch_is_called_as_a_whole() -> None:
    model, seen = policy(CONFIGS["llama"]()), []
    model.model.layers[1].register_forward_hook(lambda *_: seen.append(1))
    with folded(model, packs=True):
        logits(model)
    assert len(seen) == 3
    assert "model" not in changed(model)


@torch.no_grad()
def test_a_step_that_asks_for_more_than_logits_gets_it() -> None:
    model = policy(CONFIGS["qwen3"]())
    cache = DynamicCache(config=model.config)
    given = {"position_ids": torch.zeros(2, 1, dtype=torch.long), cache_argument(model): cache, "use_cache": True}
    with folded(model, packs=True):
        output = model(IDS[:, :1], attention_mask=MASK[:, 2:3], output_hidden_states=True, **given)
    assert len(output.hidden_states) == len(model.model.layers) + 1


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda: policy(MistralConfig(**SIZES)), id="another-family"),
        pytest.param(lambda: policy(LlamaConfig(**SIZES, attn_implementation="eager")), id="eager"),
        pytest.param(lambda: mixed(policy(CONFIGS["llama"](), torch.bfloat16)), id="two-precisions"),
    ],
)
def test_other_models_are_left_alone(model: Callable[[], Any]) -> None:
    assert not changed(model())


def test_arithmetic_of_lower_precision_is_left_alone() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not changed(policy(CONFIGS["llama"]()))


def test_an_adapter_that_is_more_than_a_sum_stays_in_its_layer() -> None:
    torch.manual_seed(0)
    config = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False, use_dora=True)
    model = get_peft_model(policy(CONFIGS["llama"]()), config).eval()
    wanted = logits(model)
    with folded(model, packs=True):
        torch.testing.assert_close(logits(model), wanted, rtol=1e-4, atol=1e-4)
    assert {name.split(".")[-1] for name in changed(model)} >= {"mlp", "norm"}
    assert not any(name.endswith("self_attn") for name in changed(model))


def test_weights_that_an_adapter_changes_at_every_call_are_read_at_every_call() -> None:
    sizes = {**SIZES, "hidden_size": 256, "intermediate_size": 512}
    config = LoraConfig(r=4, target_parameters=["up_proj.weight", "o_proj.weight"], init_lora_weights=False)
    model = get_peft_model(policy(LlamaConfig(**sizes)), config).eval()
    wanted = logits(model)
    with torch.no_grad(), model.disable_adapter():
        assert (logits(model) - wanted).abs().max() > 0.1
    with folded(model, packs=True):
        torch.testing.assert_close(logits(model), wanted, rtol=1e-4, atol=1e-4)


def test_a_class_that_somebody_changed_computes_as_it_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = policy(CONFIGS["llama"]())
    kind = type(model.model.layers[0].mlp)
    monkeypatch.setattr(kind, "forward", lambda self, x: 2 * self.down_proj(self.up_proj(x)))
    wanted = logits(model)
    with folded(model, packs=True):
        torch.testing.assert_close(logits(model), wanted, rtol=1e-4, atol=1e-4)


def test_arithmetic_of_accelerate_is_left_alone() -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        accelerator = Accelerator(cpu=True, mixed_precision="bf16")
        model = accelerator.unwrap_model(accelerator.prepare(policy(CONFIGS["llama"]())))
        wanted = logits(model)
        with folded(model, packs=True):
            assert torch.equal(logits(model), wanted)
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("target", ["q_proj", "up_proj"])
def test_taking_the_adapter_off_meanwhile_fails(target: str) -> None:
    model = adapted(policy(CONFIGS["llama"]()), [target])
    with pytest.raises(RuntimeError, match="taken off"), folded(model, packs=True), model.disable_adapter():
        logits(model)
    assert not any(getattr(module, "merged_adapters", []) for module in model.modules())
