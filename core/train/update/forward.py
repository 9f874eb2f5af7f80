"""Runs forward passes and returns log-probabilities of completions, shape [B, T]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from grpo.core.policy.blocks import no_mask
from grpo.core.train.batch.tensors import OWNER, Tensors, rows_of, whole_ids, whole_mask
from grpo.core.train.update.layers import faster_layers
from grpo.core.train.update.packing import IGNORED, Packed, pack
from grpo.kernels.fused import Coefficients
from grpo.kernels.logp import Entropy

REFERENCE = "ref"  # what TRL calls the frozen copy of a warmed-up adapter


class Predicted(NamedTuple):
    logps: torch.Tensor  # [B, T] float32 log-probabilities, 0 where there is no token
    entropies: torch.Tensor | None  # [B, T] float32, or None where nobody asked
    padding: int  # how many of the computed positions hold no token
    positions: int  # how many were computed


def completion_logps(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    length: int,
    *,
    pack_for: int | None,
    entropy: Entropy,
    trees: bool = False,
    coefficients: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Predicted:
    """Computes log-probabilities, and entropies, of completion tokens.

    `model`: from `attach_logps`, possibly wrapped. `input_ids`: [B, P + T] prompts padded on the left, completions on
    the right. `attention_mask`: [B, P + T], 1 for real tokens. `length`: T. `pack_for`: the hidden size of a model that
    takes packed rows, else None. `entropy`: their "value", or the value with a "grad"ient. `trees`: some rows are of
    one rollout, so a prompt may begin as another row does. `coefficients`: given [B, T] log-probabilities, some of them
    unknown, returns dL/dlogp of each (kernels/fused.py).
    """
    dtype = _attention_dtype(model, input_ids.device)
    packed = pack(input_ids, attention_mask, length, pack_for, dtype, trees=trees)
    if packed is not None:
        blocks, mask = packed.blocks, no_mask(input_ids.device)
        predicted = model(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            **({} if blocks is None else {"attention_mask": mask, "attention_blocks": blocks}),
            logp_labels=packed.labels,
            logp_entropy=entropy,
            logp_coefficients=_of_labels(packed, coefficients) if coefficients is not None else None,
        )
        entropies = packed.unpack(predicted["entropy"]) if entropy != "none" else None
        return Predicted(packed.unpack(predicted["logps"]), entropies, packed.padding, packed.input_ids.numel())
    labels = input_ids.masked_fill(attention_mask == 0, IGNORED)[:, -length:]
    before = input_ids.new_full((len(input_ids), input_ids.shape[1] - length - 1), IGNORED)
    after = input_ids.new_full((len(input_ids), 1), IGNORED)
    predicted = model(
        input_ids=input_ids,
        attention_mask=attention_mask,
        logp_labels=torch.cat([before, labels, after], dim=1),
        logp_entropy=entropy,
    )
    where = slice(input_ids.shape[1] - length - 1, -1)
    entropies = predicted["entropy"][:, where] if entropy != "none" else None
    padding = int((attention_mask == 0).sum())
    return Predicted(predicted["logps"][:, where], entropies, padding, attention_mask.numel())


@dataclass(eq=False)
class LogProbs:
    """Log-probabilities under a policy that is not trained on them."""

    pack_for: int | None  # the hidden size of a model that takes packed rows, else None
    rollouts: int
    autocast: Callable[[], AbstractContextManager[Any]]

    def __call__(self, model: Any, tensors: Tensors) -> torch.Tensor:
        """Returns [N, T] float32 without a gradient; `model` is from `attach_logps`, possibly wrapped."""
        ids, mask, length = whole_ids(tensors), whole_mask(tensors), tensors["completion_ids"].shape[1]
        with torch.no_grad(), self.autocast(), faster_layers(model):
            parts = [
                completion_logps(
                    model, ids[rows], mask[rows], length, pack_for=self.pack_for, entropy="none", trees=OWNER in tensors
                ).logps
                for rows in rows_of(tensors, self.rollouts)
            ]
        return torch.cat(parts)


def _of_labels(packed: Packed, coefficients: Callable[[torch.Tensor], torch.Tensor]) -> Coefficients:
    """Maps the labelled positions, in which the output layer works, to [B, T] and back."""
    tokens = packed.present.flatten().nonzero()[:, 0]
    order = tokens[packed.source.flatten()[tokens].argsort()]  # the token of each labelled position

    def of_rows(logps: torch.Tensor, rows: slice) -> torch.Tensor:
        known = logps.new_zeros(packed.present.numel())
        known[order[rows]] = logps
        return coefficients(known.view_as(packed.present)).flatten()[order[rows]]

    return of_rows


def _attention_dtype(model: Any, device: torch.device) -> torch.dtype:
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    dtypes = (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    return next(dtypes, torch.float32)


def reference_logps(
    logps: Callable[[Any, Tensors], torch.Tensor], tensors: Tensors, *, frozen: Any, wrapped: Any, policy: Any
) -> torch.Tensor:
    """Returns [N, T] under the reference: `frozen`, or if None the policy with the run's first adapter."""
    if frozen is not None:
        return logps(frozen, tensors)
    with _first_adapter(policy):
        return logps(wrapped, tensors)


@contextmanager
def _first_adapter(policy: Any) -> Iterator[None]:
    if REFERENCE not in policy.peft_config:
        with policy.disable_adapter():
            yield
        return
    trained = policy.active_adapter
    policy.set_adapter(REFERENCE)
    try:
        yield
    finally:
        policy.set_adapter(trained)
