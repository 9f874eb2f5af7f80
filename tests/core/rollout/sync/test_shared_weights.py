"""One copy of the frozen weights: a real run whose policy computes with the engine's own tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_bench import REAL_VLLM

from grpo.plugins.errors import UsageError

pytestmark = REAL_VLLM


def settings(model: Path, reward: str, out: Path, **more: Any) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "env": "gsm8k:size=40",
        "dataset": "embedded",
        "model": str(model),
        "rewards": [reward],
        "out": str(out),
        "train": {"steps": 3, "prompts_per_step": 3, "group_size": 4, "lr": 1e-2},
        "rollout": {"backend": "vllm", "max_completion_length": 12, "share_weights": True},
        "lora": {"enabled": True, "rank": 4},
        "evaluation": {"size": 0},
    }
    return {key: {**tree.get(key, {}), **more[key]} if key in more else value for key, value in tree.items()}


def train(tree: dict[str, Any]) -> None:
    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    start(parse_config(tree), Host.discover(), Silent())


@dataclass(frozen=True)
class Seen:
    """What a run's policy and engine were when the run had ended."""

    path: Path
    shared: set[int]
    policy: dict[str, int]
    frozen: dict[str, torch.Tensor]
    logits: torch.Tensor
    saved: int


def logits_of(model: Any) -> torch.Tensor:
    ids = torch.arange(3, 300).reshape(3, 99)
    with torch.no_grad():
        logits: torch.Tensor = model(ids).logits
    return logits


@pytest.fixture(scope="module")
def seen(tiny_model: Path, vowels: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A run with vLLM's repacking of matrices for this CPU switched off, so that its tensors are plain as on a GPU."""
    import vllm._custom_ops
    import vllm.model_executor.layers.utils

    from grpo.core.rollout.engine.vllm import VllmEngine
    from grpo.core.rollout.sync import shared_weights

    out = tmp_path_factory.mktemp("shared") / "run"
    models: list[Any] = []
    saved: list[int] = []
    share, close = shared_weights.share_frozen, VllmEngine.close
    ended: dict[str, Any] = {}

    def noted(model: Any, served: Any) -> int:
        models.extend((model, served))
        saved.append(share(model, served))
        return saved[-1]

    def closed(engine: Any) -> None:
        model, served = models
        ended["shared"] = {p.untyped_storage().data_ptr() for p in served.parameters()}
        frozen = {name: p for name, p in model.named_parameters() if ".lora_" not in name}
        ended["policy"] = {name: p.untyped_storage().data_ptr() for name, p in frozen.items()}
        ended["frozen"] = {name: p.detach().clone() for name, p in frozen.items()}
        with model.disable_adapter():
            ended["logits"] = logits_of(model.eval())
        close(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm._custom_ops, "_supports_onednn", False)
        patch.setattr(vllm.model_executor.layers.utils, "check_cpu_sgl_kernel", lambda *_: False)
        patch.setattr(shared_weights, "share_frozen", noted)
        patch.setattr(VllmEngine, "close", closed)
        train(settings(tiny_model, vowels, out))
    return Seen(out, saved=saved[0], **ended)


def test_every_frozen_parameter_is_the_engines_own_memory_after_training_too(seen: Seen) -> None:
    assert len(seen.policy) > 20
    assert set(seen.policy.values()) <= seen.shared


def test_logits_and_frozen_weights_are_exactly_those_of_the_checkpoint(seen: Seen, tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    assert torch.equal(seen.logits, logits_of(model))
    for name, weight in model.named_parameters():
        plain = [tensor for key, tensor in seen.frozen.items() if key.replace(".base_layer", "").endswith(f"l.{name}")]
        assert len(plain) == 1, name
        assert torch.equal(plain[0], weight)


def test_the_memory_of_one_copy_is_given_back(seen: Seen, tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM

    weights = sum(p.numel() * 4 for p in AutoModelForCausalLM.from_pretrained(tiny_model).parameters())
    assert seen.saved == weights
    rows = [json.loads(line) for line in (seen.path / "metrics.jsonl").read_text().splitlines()]
    assert [row["sync/shared_bytes"] for row in rows] == [weights] * 3


def test_the_adapter_trains_and_every_batch_is_proven(seen: Seen) -> None:
    rows = [json.loads(line) for line in (seen.path / "metrics.jsonl").read_text().splitlines()]
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert all(row["sync/folded"] == 0.0 and row["sync/bytes"] < 200_000 for row in rows)
    assert not any("sync/repeated" in row or "sync/steps_again" in row for row in rows)
    from safetensors.torch import load_file

    adapter = load_file(seen.path / "model" / "adapter_model.safetensors")
    assert any(float(tensor.abs().max()) > 0 for name, tensor in adapter.items() if ".lora_B." in name)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"rollout": {"backend": "hf"}}, "--rollout hf: it is for vLLM in this process"),
        ({"lora": {"enabled": False, "rank": 16}}, "full fine-tuning: every weight trains"),
        ({"rollout": {"lora_sync": "folded"}}, "folding would write to the frozen weights"),
        ({"rollout": {"sleep": True}}, "an engine that sleeps"),
    ],
)
def test_it_is_refused_where_it_cannot_hold(
    tiny_model: Path, vowels: str, tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        train(settings(tiny_model, vowels, tmp_path / "run", **more))


class Packed(torch.nn.Module):
    """An engine's layer whose matrix was packed away, or holds other values."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.lm_head = torch.nn.Linear(1, 1, bias=False)
        self.lm_head.weight = torch.nn.Parameter(weight, requires_grad=False)


@pytest.mark.parametrize(
    ("weight", "words"),
    [(torch.empty(0), "does not hold lm_head.weight as the policy"), (torch.zeros(5, 3), "loaded other values")],
    ids=["packed", "other values"],
)
def test_an_engine_with_packed_or_other_weights_is_refused_and_nothing_is_changed(
    weight: torch.Tensor, words: str
) -> None:
    from peft import LoraConfig, get_peft_model

    from grpo.core.rollout.sync.shared_weights import share_frozen

    class Policy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lm_head = torch.nn.Linear(3, 5, bias=False)

    model = get_peft_model(Policy(), LoraConfig(target_modules=["lm_head"], r=2))
    kept = {name: (parameter.data_ptr(), parameter.clone()) for name, parameter in model.named_parameters()}
    with pytest.raises(UsageError, match=words):
        share_frozen(model, Packed(weight))
    for name, parameter in model.named_parameters():
        assert parameter.data_ptr() == kept[name][0]
        assert torch.equal(parameter, kept[name][1])
