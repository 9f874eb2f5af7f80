"""Computes the policy loss of a micro batch and its metrics; its first pass keeps the log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import InitVar, dataclass
from typing import Any

import torch

from grpo.core.config.sections import Correction, LossSection
from grpo.core.train.batch.tensors import OWNER, Tensors, counted, narrowest, rollouts_in, whole_ids, whole_mask
from grpo.core.train.update.forward import completion_logps
from grpo.core.train.update.metrics import UpdateFigures, update_sums
from grpo.core.train.update.objective import Counts, Objective, PassLoss, is_per_token
from grpo.plugins._spec.binding import BoundLoss
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
    kept: torch.Tensor  # [B'] int64, the rows of the micro batch that are here
    learns: bool  # they have a gradient; where no row has one, a rollout stands in for them
    width: int  # T', columns of completions
    tensors: Tensors  # names to [B', ...] tensors; completions are cut to T', prompts to their longest


def trained_rows(inputs: Tensors, *, every_token: bool) -> MiniBatch:
    """Selects the rows that have a gradient, at least one so that every process goes backward, and cuts empty columns.

    Without an advantage the gradient is 0 unless `every_token`: the loss has a term that is no multiple of it (beta).
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


@dataclass(frozen=True, slots=True)
class PolicyLossValue:
    loss: torch.Tensor
    part: MiniBatch  # the rows that were computed
    logps: torch.Tensor  # [B', T'] of them, without a gradient
    sampled: torch.Tensor  # [B', T'] as whoever sampled them reported them
    mask: torch.Tensor  # [B', T'], 1 for tokens that the policy chose


@dataclass(eq=False)
class PolicyLoss:
    """What a run minimises. `figures`: of the forward passes since they were last taken."""

    loss: InitVar[BoundLoss]
    settings: LossSection
    correction: Correction  # how tokens are weighed that engine and policy find differently probable
    longest: int  # the most tokens that the policy chooses in one rollout
    accumulation: int
    processes: int
    pack_for: int | None
    autocast: Callable[[], AbstractContextManager[Any]]

    def __post_init__(self, loss: BoundLoss) -> None:
        self._objective = Objective(loss, self.settings.beta, self.settings.use_bias_correction_kl)
        self._per_token = is_per_token(loss, self.correction)
        self.figures = UpdateFigures(kl=self.settings.beta != 0.0, weighted=self.correction != "none")

    def __call__(self, model: Any, batch: Tensors, *, first_pass: bool) -> PolicyLossValue:
        """Makes a forward pass over a micro batch; the first of several leaves `old_per_token_logps` in it."""
        wanted = self._objective.loss.spec
        every = self.settings.beta != 0.0 or wanted.every_row
        part, whole = trained_rows(batch, every_token=every), counted(batch)
        tensors = part.tensors
        loss = PassLoss(
            self._objective,
            Counts(
                rollouts=rollouts_in(batch),
                tokens=whole.sum(),
                batch_tokens=batch["num_items_in_batch"] / self.processes,
                longest=self.longest,
                accumulation=self.accumulation,
            ),
            mask=counted(tensors),
            advantages=tensors["advantages"],
            old_logps=None if first_pass else tensors["old_per_token_logps"],
            ref_logps=tensors.get("ref_per_token_logps"),
            sampled=tensors["sampling_per_token_logps"],
            correction=self.correction,
            cap=self.settings.rollout_correction_cap,
            floor=self.settings.rollout_correction_floor,
            owner=tensors.get(OWNER),
        )
        with self.autocast():
            predicted = completion_logps(
                model,
                whole_ids(tensors),
                whole_mask(tensors),
                part.width,
                pack_for=self.pack_for,
                entropy="grad" if wanted.entropies == "gradient" else "value",
                trees=OWNER in tensors,
                coefficients=loss.coefficients if self._per_token else None,
            )
        logps, entropies = predicted.logps, predicted.entropies
        if first_pass and self.settings.num_iterations > 1:
            batch["old_per_token_logps"] = torch.zeros_like(batch["completion_mask"], dtype=logps.dtype)
            batch["old_per_token_logps"][part.kept, : part.width] = logps.detach()
        assert entropies is not None
        value, importance = loss(logps, None if wanted.entropies == "none" else entropies)
        trained = loss.mask if part.learns else torch.zeros_like(loss.mask)
        sums = update_sums(value, entropies.detach(), trained, importance)
        self.figures.add(sums, tuple(value.metrics), predicted.padding, predicted.positions)
        return PolicyLossValue(value.loss, part, logps.detach(), loss.sampled, loss.mask)
