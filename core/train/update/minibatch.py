"""Drops the rows and columns of a micro batch from which nothing is learned.

A completion without an advantage has a gradient of exactly zero unless the loss has a KL term, and one that is masked
has none at all. Leaving them out of the forward pass changes no gradient as long as averages still count them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from grpo.core.train.batch.tensors import OWNER, Tensors, counted, narrowest, whole_ids, whole_mask
from grpo.plugins.training import over_rows

COMPLETION = (
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "old_per_token_logps",
    "ref_per_token_logps",
    "sampling_per_token_logps",
)
PROMPT = ("prompt_ids", "prompt_mask")


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """What a forward pass works on."""

    kept: torch.Tensor  # [B'] int64, the rows of the micro batch that are here
    learns: bool  # they have a gradient; where no row has one, a rollout stands in for them
    width: int  # T', columns of completions
    tensors: Tensors  # names to [B', ...] tensors; completions are cut to T', prompts to their longest

    def input_ids(self) -> torch.Tensor:
        """[B', P' + T'] prompts and completions."""
        return whole_ids(self.tensors)

    def attention_mask(self) -> torch.Tensor:
        """[B', P' + T'], 1 for real tokens."""
        return whole_mask(self.tensors)

    @property
    def owner(self) -> torch.Tensor | None:
        """[B'] the number of each row's rollout, None where each row is a rollout."""
        return self.tensors.get(OWNER)

    def loss_mask(self) -> torch.Tensor:
        """[B', T'], 1 for tokens that the policy chose."""
        return counted(self.tensors)


def trained_rows(inputs: Tensors, *, every_token: bool) -> MiniBatch:
    """Selects the rows that have a gradient.

    Args:
        inputs: a micro batch (core/train/batch/tensors.py), with advantages.
        every_token: the loss has a term that is no multiple of the advantage (beta).

    Returns:
        At least one row, so that every process makes a backward pass.
    """
    learns = inputs["completion_mask"].any(dim=1)
    if not every_token:
        worth = inputs["advantages"]
        learns = learns & ((worth != 0) if worth.ndim == 1 else worth.any(dim=1))
    kept = learns.nonzero()[:, 0]
    any_learns = len(kept) > 0
    if not any_learns:
        owner, lengths = inputs.get(OWNER), inputs["completion_mask"].sum(dim=1, keepdim=True)
        kept = over_rows(lengths, owner)[:, 0].argmin()[None]
        if owner is not None:  # whole rollouts, or the record would have some of the tokens of one
            kept = (owner == owner[kept]).nonzero()[:, 0]
    width = max(narrowest(inputs), int(inputs["completion_mask"][kept].sum(dim=1).max()))
    prompt = max(1, int(inputs["prompt_mask"][kept].sum(dim=1).max()))
    worth = inputs["advantages"][kept]
    tensors = {"advantages": worth if worth.ndim == 1 else worth[:, :width]}
    tensors |= {name: inputs[name][kept, :width] for name in COMPLETION if name in inputs}
    tensors |= {name: inputs[name][kept, -prompt:] for name in PROMPT}
    tensors |= {name: inputs[name][kept] for name in (OWNER,) if name in inputs}
    return MiniBatch(kept=kept, learns=any_learns, width=width, tensors=tensors)
