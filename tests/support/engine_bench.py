"""What the tests of rollout engines share: marks, policies, prompts, faulty engines, and how far an engine is off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.rollout.types import SamplingParams

PARAMS = SamplingParams(max_tokens=24, eos_ids=(2,), pad_id=0)
TOLERANCE = 2e-4
RANK = 4
REAL_VLLM = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("vllm_installed"),
]
"""The marks of a module whose tests run the real vLLM."""


def base_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def with_adapter(folder: Path, **settings: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    settings = {"r": RANK, "lora_alpha": 8, **settings}
    model = get_peft_model(
        base_model(folder), LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM", **settings)
    )
    move(model, 0.05)
    return model


def move(model: Any, size: float) -> None:
    """Changes what trains, as an optimizer step would."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def engine_for(folder: Path, *, lora: bool) -> Any:
    from grpo.core.rollout.engine.vllm import EngineSettings, VllmEngine

    modules = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    return VllmEngine(
        EngineSettings(
            model=str(folder),
            dtype="float32",
            context=512,
            raw_logprobs=True,
            memory_share=0.3,
            lora_rank=RANK if lora else None,
            lora_modules=modules if lora else (),
        )
    )


def rollouts_of(link: Any, lora_sync: Any = "adapter", tolerance: float = TOLERANCE) -> Any:
    from grpo.core.rollout.engine.proven import EngineRollouts

    return EngineRollouts(link, tolerance=tolerance, lora_sync=lora_sync)


def gap(model: Any, prompts: list[list[int]], sampled: list[Any]) -> float:
    """Returns the largest difference of the engine's log-probabilities from an unpadded forward pass of the policy."""
    found = 0.0
    for prompt, one in zip(prompts, sampled, strict=True):
        ids = torch.tensor([prompt + list(one.token_ids)])
        with torch.no_grad():
            logprobs = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        mine = logprobs.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        found = max(found, float((mine - torch.tensor(one.logprobs)).abs().max()))
    return found


def prompts_of(lengths: list[int], copies: int = 1) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    drawn = [torch.randint(3, 400, (length,), generator=generator).tolist() for length in lengths]
    return [prompt for prompt in drawn for _ in range(copies)]


class Faulty:
    """An engine link with one fault."""

    def __init__(self, link: Any, **faults: Any) -> None:
        self._link = link
        for name, fault in faults.items():
            setattr(self, name, fault)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


def sync_with(rollouts: Any, link: Any, model: Any, size: float, **faults: Any) -> None:
    """Syncs well, moves the policy, plants a fault and syncs again."""
    rollouts.sync(model)
    move(model, size)
    rollouts.engines[0].link = Faulty(link, **faults)
    try:
        rollouts.sync(model)
    finally:
        rollouts.engines[0].link = link
