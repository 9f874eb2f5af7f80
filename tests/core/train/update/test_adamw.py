"""Full fine-tuning in 16 bits moves the weights as it does in 32."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from transformers import TrainingArguments

from grpo.core.config.sections import LoraSection
from grpo.core.policy.load import load_policy
from grpo.core.train.update.adamw import CompensatedAdamW, compensated_for, joined

SHAPE = (60, 50)


def gradients(steps: int, *, halved_after: int = 10) -> list[torch.Tensor]:
    """Noise around one direction, as policy gradients are, large at first and then small."""
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(SHAPE, generator=generator)
    sizes = [1e-3 * 0.5 ** min(step / halved_after, 4) for step in range(steps)]
    return [size * (direction + torch.randn(SHAPE, generator=generator)) for size in sizes]


def weights(dtype: torch.dtype) -> torch.nn.Parameter:
    return torch.nn.Parameter((0.02 * torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))).to(dtype))


def trained(optimizer: Any, weight: torch.nn.Parameter, steps: list[torch.Tensor]) -> None:
    for gradient in steps:
        weight.grad = gradient.to(weight.dtype)
        optimizer.step()


def moved(kind: Any, dtype: torch.dtype, lr: float) -> torch.Tensor:
    """How far 300 steps move weights, with what rounding left out."""
    weight = weights(dtype)
    before = weight.detach().float().clone()
    optimizer = kind([weight], lr=lr, betas=(0.9, 0.999), weight_decay=0.01)
    trained(optimizer, weight, gradients(300))
    return joined(weight.detach(), optimizer.state[weight].get("weight_low")) - before


@pytest.mark.parametrize("lr", [1e-6, 1e-5, 1e-3])
def test_bfloat16_moves_as_far_as_float32(lr: float) -> None:
    expected = moved(torch.optim.AdamW, torch.float32, lr)
    apart = (moved(CompensatedAdamW, torch.bfloat16, lr) - expected).norm() / expected.norm()
    assert apart < 0.005
    if lr == 1e-6:
        lost = (moved(torch.optim.AdamW, torch.bfloat16, lr) - expected).norm() / expected.norm()
        assert lost > 0.9, "what it is there for"


def test_weights_of_32_bits_beside_others_get_torchs_update() -> None:
    expected = moved(torch.optim.AdamW, torch.float32, 1e-4)
    torch.testing.assert_close(moved(CompensatedAdamW, torch.float32, 1e-4), expected, rtol=1e-5, atol=1e-8)


def test_what_rounding_left_survives_a_checkpoint() -> None:
    steps, whole, resumed = gradients(20), weights(torch.bfloat16), weights(torch.bfloat16)
    trained(CompensatedAdamW([whole], lr=1e-5), whole, steps)
    first = CompensatedAdamW([resumed], lr=1e-5)
    trained(first, resumed, steps[:10])
    second = CompensatedAdamW([resumed], lr=1e-5)
    second.load_state_dict(deepcopy(first.state_dict()))
    trained(second, resumed, steps[10:])
    assert torch.equal(whole, resumed)


def test_only_trained_weights_of_16_bits_need_it(tiny_model: Path, tmp_path: Path) -> None:
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, learning_rate=1e-6)
    full, lora = LoraSection(), LoraSection(enabled=True)
    chosen = compensated_for(load_policy(str(tiny_model), "bfloat16", full), args)
    assert chosen is not None
    assert chosen[1]["lr"] == 1e-6
    assert compensated_for(load_policy(str(tiny_model), "float32", full), args) is None
    assert compensated_for(load_policy(str(tiny_model), "bfloat16", lora), args) is None


def test_a_sharded_weight_moves_as_a_whole_one(tmp_path: Path) -> None:
    whole, steps = weights(torch.bfloat16), gradients(5)
    trained(CompensatedAdamW([whole], lr=1e-5), whole, steps)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded = torch.nn.Parameter(distribute_tensor(weights(torch.bfloat16).detach(), mesh, [Shard(0)]))
        optimizer = CompensatedAdamW([sharded], lr=1e-5)
        for gradient in steps:
            sharded.grad = distribute_tensor(gradient.to(torch.bfloat16), mesh, [Shard(0)])
            optimizer.step()
        assert isinstance(sharded, DTensor)
        assert torch.equal(sharded.to_local(), whole)
    finally:
        torch.distributed.destroy_process_group()
