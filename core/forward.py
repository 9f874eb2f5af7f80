"""One forward pass over prompts and completions: token ids in, log-probabilities [B, T] of the completions out."""

from __future__ import annotations

from typing import Any

import torch

from grpo.core.packing import IGNORED, pack


def completion_logps(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    length: int,
    *,
    pack_for: int | None,
    entropy: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Computes log-probabilities, and entropies, of completion tokens.

    Args:
        model: what `attach_logps` was given, possibly wrapped.
        input_ids: [B, P + T] prompts padded on the left, completions on the right.
        attention_mask: [B, P + T], 1 for real tokens.
        length: T.
        pack_for: the hidden size of a model that takes packed rows (core/packing.py), else None.
        entropy: also return entropies.

    Returns:
        [B, T] float32 each, 0 where there is no token; entropies carry no gradient.
    """
    packed = pack(input_ids, attention_mask, length, pack_for, _attention_dtype(model, input_ids.device))
    if packed is not None:
        found = model(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            attention_mask=packed.attention_mask,
            logp_labels=packed.labels,
            logp_entropy=entropy,
        )
        return packed.unpack(found["logps"]), packed.unpack(found["entropy"]) if entropy else None
    labels = input_ids.masked_fill(attention_mask == 0, IGNORED)[:, -length:]
    before = input_ids.new_full((len(input_ids), input_ids.shape[1] - length - 1), IGNORED)
    after = input_ids.new_full((len(input_ids), 1), IGNORED)
    found = model(
        input_ids=input_ids,
        attention_mask=attention_mask,
        logp_labels=torch.cat([before, labels, after], dim=1),
        logp_entropy=entropy,
    )
    where = slice(input_ids.shape[1] - length - 1, -1)
    return found["logps"][:, where], found["entropy"][:, where] if entropy else None


def _attention_dtype(model: Any, device: torch.device) -> torch.dtype:
    """The dtype of a model's queries and keys."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    dtypes = (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    return next(dtypes, torch.float32)
