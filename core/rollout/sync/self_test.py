"""The known change of the self-test: which weights change, and what the policy would compute with them.

In: the policy, which is not written to. Out: changed copies of a few weights, and logits under them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from grpo.core.rollout.sync.payload import ADAPTER, has_adapter
from grpo.core.rollout.types import evaluating

DRAWN = 8  # prompts to choose from
SHARE = 0.5  # of a matrix's root mean square: large beside any optimizer step


def open_prompt(model: Any, length: int) -> list[int]:
    """Returns a prompt of random tokens, of a few the one that the policy is least sure how to go on from.

    Where a policy is sure of itself, its log-probabilities are all near 0 and would hide a wrong copy.
    """
    weight = model.get_input_embeddings().weight
    prompts = torch.randint(weight.shape[0], (DRAWN, length), generator=torch.Generator().manual_seed(0))
    with evaluating(model), torch.no_grad():
        logprobs = model(input_ids=prompts.to(weight.device)).logits[:, -1].float().log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    chosen: list[int] = prompts[int(entropy.argmax())].tolist()
    return chosen


def perturbed(model: Any) -> dict[str, torch.Tensor]:
    """Returns changed copies of some weights by parameter name: all of B with an adapter, else embedding and a layer.

    The embedding is among them because a tied head is served from a copy of its own.
    """
    named = dict(model.named_parameters())
    if has_adapter(model):
        chosen = [name for name in named if f".lora_B.{ADAPTER}." in name]
    else:
        embedding = model.get_input_embeddings().weight
        matrices = [name for name, p in named.items() if p.ndim == 2 and p is not embedding]
        chosen = [name for name, p in named.items() if p is embedding] + matrices[len(matrices) // 2 :][:1]
    generator = torch.Generator().manual_seed(1)
    changed: dict[str, torch.Tensor] = {}
    for name in chosen:
        weight = named[name].detach()
        noise = torch.randn(weight.shape, generator=generator).to(weight.device, weight.dtype)
        changed[name] = weight + noise * (SHARE * _size_for(model, name, weight))
    return changed


def _size_for(model: Any, name: str, weight: torch.Tensor) -> float:
    """Returns the root mean square of a weight, or of a B with which scaling * B A is as large as its frozen weight."""
    if not has_adapter(model):
        return _rms(weight)
    module = model.get_submodule(name.partition(".lora_B.")[0])
    a = module.lora_A[ADAPTER].weight
    product = module.scaling[ADAPTER] * a.shape[0] ** 0.5 * _rms(a)
    return _rms(module.get_base_layer().weight) / product if product else 1.0


def _rms(weight: torch.Tensor) -> float:
    return float(weight.detach().float().pow(2).mean().sqrt())


def perturbed_logits(model: Any, ids: torch.Tensor, changed: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the logits [1, T, V] of a model for ids [1, T], computed with some weights changed."""
    if not changed:
        output: Any = model(input_ids=ids)
    else:
        output = torch.func.functional_call(model, dict(changed), kwargs={"input_ids": ids})
    logits: torch.Tensor = output.logits
    return logits
