"""The rows of a micro batch that have something to learn from: TRL's tensors in, fewer rows and columns of them out.

A completion without an advantage has a gradient of exactly zero unless the loss has a KL term, and one that is masked
has none at all. Leaving them out of the forward pass changes no gradient as long as averages still count them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

ROWS = ("advantages",)
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
    """What a forward pass works on.

    Attributes:
        kept: [B'] int64, the rows of the micro batch that are here.
        width: T', columns of completions.
        tensors: TRL's names to [B', ...] tensors; completions are cut to T', prompts to their longest.
    """

    kept: torch.Tensor
    width: int
    tensors: dict[str, torch.Tensor]

    def input_ids(self) -> torch.Tensor:
        """[B', P' + T'] prompts and completions."""
        return torch.cat([self.tensors["prompt_ids"], self.tensors["completion_ids"]], dim=1)

    def attention_mask(self) -> torch.Tensor:
        """[B', P' + T'], 1 for real tokens."""
        return torch.cat([self.tensors["prompt_mask"], self.tensors["completion_mask"]], dim=1)

    def loss_mask(self) -> torch.Tensor:
        """[B', T'], 1 for tokens that the policy chose."""
        return counted(self.tensors)


def counted(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """[B, T], 1 for tokens that the policy chose; those that an environment put between them are no choice."""
    mask = tensors["completion_mask"]
    return mask * tensors["tool_mask"] if "tool_mask" in tensors else mask


def trained_rows(inputs: dict[str, Any], *, every_token: bool) -> MiniBatch:
    """Selects the rows that have a gradient.

    Args:
        inputs: of TRL's `compute_loss`.
        every_token: the loss has a term that is no multiple of the advantage (beta).

    Returns:
        At least one row, so that every process makes a backward pass.
    """
    learns = inputs["completion_mask"].any(dim=1)
    if not every_token:
        learns = learns & (inputs["advantages"] != 0)
    kept = learns.nonzero()[:, 0]
    if len(kept) == 0:
        kept = inputs["completion_mask"].sum(dim=1).argmin()[None]
    width = max(1, int(inputs["completion_mask"][kept].sum(dim=1).max()))
    prompt = max(1, int(inputs["prompt_mask"][kept].sum(dim=1).max()))
    tensors = {name: inputs[name][kept] for name in ROWS}
    tensors |= {name: inputs[name][kept, :width] for name in COMPLETION if name in inputs}
    tensors |= {name: inputs[name][kept, -prompt:] for name in PROMPT}
    return MiniBatch(kept=kept, width=width, tensors=tensors)
