"""Activations that go to host memory and come back, and the modes of checkpointing: the same gradients in each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from grpo.core.train.update.offload import Offload


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(lambda y, layer=layer: torch.tanh(layer(y)), x, use_reentrant=True)
        return x


def gradients(model: Layers, x: torch.Tensor, offload: Offload | None) -> list[torch.Tensor]:
    model.zero_grad()
    kept = {p.untyped_storage().data_ptr() for p in model.parameters()}
    if offload is None:
        loss = model(x).square().sum()
    else:
        with offload.offloaded(kept):
            loss = model(x).square().sum()
    loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_gradients_are_the_same_bits_and_buffers_are_used_again() -> None:
    model, offload = Layers(), Offload(smallest=1024)
    for rows in (16, 16, 24, 24):
        x = torch.randn(rows, 32).requires_grad_()
        for one, other in zip(gradients(model, x, offload), gradients(model, x, None), strict=True):
            assert torch.equal(one, other)
        assert offload.bytes >= 5 * rows * 32 * 4  # the input of each layer
    assert list(offload._buffers) == [(torch.Size([24, 32]), torch.float32)]


def test_small_tensors_and_parameters_stay() -> None:
    model, offload = Layers(), Offload(smallest=10**6)
    gradients(model, torch.randn(8, 32).requires_grad_(), offload)
    assert offload.bytes == 0
    weight = torch.randn(64, 64, requires_grad=True)
    offload = Offload(smallest=1)
    with offload.offloaded({weight.untyped_storage().data_ptr()}):
        (torch.randn(2, 64) @ weight.t()).sum()
    assert offload.bytes == 2 * 64 * 4


@pytest.mark.slow
@pytest.mark.parametrize("lora", [False, True])
def test_each_mode_trains_the_same_policy(
    lora: bool, tiny_model: Path, vowels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    monkeypatch.setattr(Offload.__init__, "__defaults__", (1024,))
    sent: list[int] = []
    original = Offload._send

    def counted(self: Offload, tensor: torch.Tensor) -> int:
        sent.append(tensor.nbytes)
        return original(self, tensor)

    monkeypatch.setattr(Offload, "_send", counted)
    results: dict[str, dict[str, torch.Tensor]] = {}
    for mode in ("auto", "full", "offload"):
        out = tmp_path / mode
        tree: dict[str, Any] = {
            "env": "gsm8k:size=20",
            "rewards": [vowels],
            "model": str(tiny_model),
            "dataset": "embedded",
            "out": str(out),
            "train": {"steps": 2, "prompts_per_step": 2, "group_size": 2, "lr": 1e-3, "checkpointing": mode},
            "lora": {"enabled": lora},
            "rollout": {"max_completion_length": 8},
            "evaluation": {"size": 0},
        }
        start(parse_config(tree), Host.discover(), Silent())
        assert bool(sent) == (mode == "offload")
        results[mode] = load_file(out / "model" / ("adapter_model.safetensors" if lora else "model.safetensors"))
    assert json.loads((tmp_path / "auto" / "config.json").read_text())["train"]["checkpointing"] == "none"
    for mode in ("full", "offload"):
        for name, weight in results["auto"].items():
            torch.testing.assert_close(results[mode][name], weight, rtol=0, atol=1e-6)
