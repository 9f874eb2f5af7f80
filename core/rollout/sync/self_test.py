"""Makes the known weight change of the self-test, and finds a prompt and a unit that show it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from grpo.core.policy.whole import changed_weights, full_shape, full_tensor
from grpo.core.rollout.sync.payload import ADAPTER, has_adapter
from grpo.core.rollout.types import evaluating

DRAWN = 8  # prompts to choose from
LEAST_SPREAD = 0.05  # of logits; below, log-probabilities are all alike up to the rounding of float32
SHARE = 0.5  # of a matrix's root mean square: large beside any optimizer step


def open_prompt(model: Any, length: int) -> list[int]:
    """Returns a prompt of random tokens, of a few the one whose continuation the policy is least sure of."""
    weight = model.get_input_embeddings().weight
    prompts = torch.randint(full_shape(weight)[0], (DRAWN, length), generator=torch.Generator().manual_seed(0))
    with evaluating(model), torch.no_grad():
        logprobs = model(input_ids=prompts.to(weight.device)).logits[:, -1].float().log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    chosen: list[int] = prompts[int(entropy.argmax())].tolist()
    return chosen


def spread(logits: torch.Tensor) -> float:
    """Returns how far logits [..., V] are apart; a policy that is sure of itself has them farther apart."""
    return max(float(logits.float().std(-1).mean()), LEAST_SPREAD)


@contextmanager
def perturbed(model: Any) -> Iterator[list[str]]:
    """Changes some weights for the block (all B, or a matrix and the embedding) and yields their names. Collective."""
    named = dict(model.named_parameters())
    if has_adapter(model):
        chosen = [name for name in named if f".lora_B.{ADAPTER}." in name]
        sizes = {name: _size_of_b(model, name) for name in chosen}
    else:
        embedding = model.get_input_embeddings().weight
        matrices = [name for name, p in named.items() if len(full_shape(p)) == 2 and p is not embedding]
        chosen = [name for name, p in named.items() if p is embedding] + matrices[len(matrices) // 2 :][:1]
        sizes = {name: _rms(named[name]) for name in chosen}
    generator = torch.Generator().manual_seed(1)

    def change(whole: torch.Tensor, size: float) -> torch.Tensor:
        noise = torch.randn(whole.shape, generator=generator).to(whole.device, whole.dtype)
        return whole + noise * (SHARE * size)

    with torch.no_grad(), changed_weights(model, {name: partial(change, size=size) for name, size in sizes.items()}):
        yield chosen


def _size_of_b(model: Any, name: str) -> float:
    """Returns the root mean square of a B with which scaling * B A is as large as its frozen weight."""
    module = model.get_submodule(name.partition(".lora_B.")[0])
    a = module.lora_A[ADAPTER].weight
    product = module.scaling[ADAPTER] * full_shape(a)[0] ** 0.5 * _rms(a)
    frozen = _rms(module.get_base_layer().weight)
    return frozen / product if product else 1.0


def _rms(weight: torch.Tensor) -> float:
    with full_tensor(weight) as whole:
        return float(whole.float().pow(2).mean().sqrt())
