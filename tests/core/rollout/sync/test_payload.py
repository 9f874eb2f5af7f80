"""What is handed to a rollout engine: every weight once, adapters folded or alone, and the policy untouched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.rollout.sync.payload import (
    Recorder,
    adapter_of,
    differing,
    fingerprint,
    fingerprints,
    loaded_types,
    probe,
    weight_stream,
)
from grpo.plugins.errors import UsageError


def load(folder: Path, **settings: Any) -> Any:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    if not settings:
        return model
    model = get_peft_model(model, LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM", **settings))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def embedded() -> Path:
    from grpo.core.policy.embedded import embedded_model_path

    return Path(embedded_model_path())


def test_a_stream_has_every_weight_once_and_the_tied_head_under_its_own_name() -> None:
    model = load(embedded())
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    names = [name for name, _ in weight_stream(model)]
    assert sorted(names) == sorted({*dict(model.named_parameters()), "lm_head.weight"})
    tensors = dict(weight_stream(model))
    assert torch.equal(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])


def test_weights_that_train_in_a_finer_type_go_as_they_were_loaded() -> None:
    """As under FSDP's mixed precision, which keeps bfloat16 weights in float32."""
    model = load(embedded()).to(torch.bfloat16)
    due = {name: tensor.clone() for name, tensor in weight_stream(model)}
    types = loaded_types(model)
    for _, tensor in weight_stream(model.float(), types=types):
        assert tensor.dtype == torch.bfloat16
    assert all(torch.equal(tensor, due[name]) for name, tensor in weight_stream(model, types=types))


def test_a_stream_copies_nothing(tiny_model: Path) -> None:
    model = load(tiny_model)
    own = {p.data_ptr() for p in model.parameters()}
    assert all(tensor.data_ptr() in own for _, tensor in weight_stream(model))


@pytest.mark.parametrize(
    "settings",
    [
        {"r": 4, "lora_alpha": 16},
        {"r": 4, "lora_alpha": 16, "use_rslora": True},
        {"r": 4, "lora_alpha": 16, "alpha_pattern": {"q_proj": 64}, "rank_pattern": {"down_proj": 2}},
    ],
    ids=["plain", "rank-stabilised", "patterns"],
)
def test_folding_and_the_adapter_alone_both_equal_what_peft_merges(tiny_model: Path, settings: dict[str, Any]) -> None:
    model = load(tiny_model, **settings)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folded = dict(weight_stream(model))
    base = {name: tensor.clone() for name, tensor in weight_stream(model, base=True)}  # merging writes to it
    adapter = adapter_of(model)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), f"handing over wrote to {name}"
    merged = model.merge_and_unload().state_dict()
    for name, weight in folded.items():
        torch.testing.assert_close(weight, merged[name], rtol=0, atol=1e-6)
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.weight" in adapter.tensors:
            # An engine computes W x + B (A x): whatever the module's scaling was, it is in B.
            served = base[name] + adapter.tensors[f"{stem}.lora_B.weight"] @ adapter.tensors[f"{stem}.lora_A.weight"]
            torch.testing.assert_close(served, merged[name], rtol=0, atol=1e-6)
            assert not torch.equal(base[name], weight)


def test_a_hundred_folded_syncs_in_bfloat16_leave_the_frozen_weights_alone(tiny_model: Path) -> None:
    model = load(tiny_model, r=4).to(torch.bfloat16)
    before = {name: p.clone() for name, p in model.named_parameters()}
    for _ in range(100):
        for _name, _tensor in weight_stream(model):
            pass
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_the_adapter_is_a_copy_that_an_engine_may_scale_in_place(tiny_model: Path) -> None:
    model = load(tiny_model, r=4)
    first = adapter_of(model)
    for tensor in first.tensors.values():
        tensor.mul_(7.0)
    second = adapter_of(model)
    assert differing(fingerprints(second.tensors, 0), fingerprints(first.tensors, 0)) == list(second.tensors)
    assert second.bytes == sum(4 * t.numel() for t in second.tensors.values())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*lora_bias=True")
def test_adapters_that_engines_serve_wrongly_are_refused_by_name(
    tiny_model: Path, settings: dict[str, Any], named: str
) -> None:
    model = load(tiny_model, r=4, **settings)
    with pytest.raises(UsageError, match=rf"cannot serve this adapter faithfully: it uses {named}"):
        adapter_of(model)
    with pytest.raises(UsageError, match=named):
        list(weight_stream(model))


def test_an_adapter_of_the_embedding_is_refused(tiny_model: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(tiny_model), LoraConfig(r=4, target_modules=["embed_tokens"])
    )
    with pytest.raises(UsageError, match=r"an adapter of model\.embed_tokens"):
        adapter_of(model)


def test_a_recorder_passes_everything_on_and_remembers_it(tiny_model: Path) -> None:
    model = load(tiny_model)
    recorder = Recorder(weight_stream(model), seed=5)
    passed = dict(recorder)
    assert recorder.fingerprints == fingerprints(passed, 5)
    assert recorder.bytes == sum(4 * p.numel() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fingerprint_sees_one_optimizer_step_at_a_tiny_learning_rate(dtype: torch.dtype) -> None:
    weight = torch.nn.Parameter(torch.randn(64, 96).to(dtype))
    before = fingerprint(probe(weight, 1))
    weight.grad = torch.randn_like(weight)
    torch.optim.AdamW([weight], lr=1e-6 if dtype == torch.float32 else 1e-3).step()
    assert fingerprint(probe(weight, 1)) != before
    assert fingerprint(probe(weight, 1)) == fingerprint(probe(weight.detach().clone(), 1))


def test_each_sync_looks_at_other_columns_so_that_all_are_looked_at_in_time() -> None:
    weight = torch.zeros(4, 64)
    changed = weight.clone()
    changed[0, 17] = 1.0
    seeds = [seed for seed in range(60) if fingerprint(probe(weight, seed)) != fingerprint(probe(changed, seed))]
    assert 0 < len(seeds) < 60


def test_what_is_missing_differs() -> None:
    assert differing({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 4}) == ["b", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"r": 4, "alpha_pattern": {"q_proj": 32}}], ids=["full", "LoRA"])
def test_the_stream_of_a_sharded_policy_is_that_of_the_whole_one(settings: dict[str, Any]) -> None:
    import torch.distributed as dist
    from torch._C._distributed_c10d import HashStore
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    model = load(embedded(), **settings)
    whole = {name: tensor.clone() for name, tensor in weight_stream(model)}
    alone = dict(adapter_of(model).tensors) if settings else {}
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        base = model.get_base_model() if settings else model
        for layer in base.model.layers:
            fully_shard(layer)
        fully_shard(model)
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
        sharded = {name: tensor.clone() for name, tensor in weight_stream(model)}
        alone_sharded = dict(adapter_of(model).tensors) if settings else {}
    finally:
        dist.destroy_process_group()
    assert list(sharded) == list(whole)
    assert "lm_head.weight" in sharded
    for one, other in ((sharded, whole), (alone_sharded, alone)):
        assert all(not isinstance(tensor, DTensor) and torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert fingerprints(alone_sharded, 1) == fingerprints(alone, 1)
