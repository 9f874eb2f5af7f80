"""Computes the policy loss of a micro batch and its metrics.

The first pass over a batch finds the log-probabilities of the policy that sampled it; with several passes
(loss.num_iterations) they are kept in the micro batch for those that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import InitVar, dataclass
from typing import Any

import torch

from grpo.core.config.sections import Correction, LossSection
from grpo.core.train.batch.tensors import Tensors, counted, rollouts_in
from grpo.core.train.update.forward import completion_logps
from grpo.core.train.update.metrics import UpdateFigures, update_sums
from grpo.core.train.update.minibatch import MiniBatch, trained_rows
from grpo.core.train.update.objective import Counts, Objective, PassLoss, is_per_token
from grpo.plugins._spec.binding import BoundLoss


@dataclass(frozen=True, slots=True)
class PolicyLossValue:
    """The loss of a forward pass."""

    loss: torch.Tensor
    part: MiniBatch  # the rows that were computed
    logps: torch.Tensor  # [B', T'] of them, without a gradient
    sampled: torch.Tensor  # [B', T'] as whoever sampled them reported them
    mask: torch.Tensor  # [B', T'], 1 for tokens that the policy chose
    sums: torch.Tensor  # [7 + M] over the tokens that were trained on (`update_sums`)
    padding: int
    positions: int
    names: tuple[str, ...] = ()  # of the M metrics of the loss


@dataclass(eq=False)
class PolicyLoss:
    """What a run minimises."""

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

    def __call__(self, model: Any, batch: Tensors, *, first_pass: bool) -> PolicyLossValue:
        """Makes a forward pass.

        Args:
            batch: a micro batch; the first of several passes leaves `old_per_token_logps` in it.
            first_pass: before any optimizer step on this batch.
        """
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
            mask=part.loss_mask(),
            advantages=tensors["advantages"],
            old_logps=None if first_pass else tensors["old_per_token_logps"],
            ref_logps=tensors.get("ref_per_token_logps"),
            sampled=tensors["sampling_per_token_logps"],
            correction=self.correction,
            cap=self.settings.rollout_correction_cap,
            floor=self.settings.rollout_correction_floor,
            owner=part.owner,
        )
        with self.autocast():
            predicted = completion_logps(
                model,
                part.input_ids(),
                part.attention_mask(),
                part.width,
                pack_for=self.pack_for,
                entropy="grad" if wanted.entropies == "gradient" else "value",
                trees=part.owner is not None,
                coefficients=loss.coefficients if self._per_token else None,
            )
        logps, entropies = predicted.logps, predicted.entropies
        if first_pass and self.settings.num_iterations > 1:
            batch["old_per_token_logps"] = torch.zeros_like(batch["completion_mask"], dtype=logps.dtype)
            batch["old_per_token_logps"][part.kept, : part.width] = logps.detach()
        value, importance = loss(logps, None if wanted.entropies == "none" else entropies)
        spread = None if entropies is None else entropies.detach()
        trained = loss.mask if part.learns else torch.zeros_like(loss.mask)
        sums = update_sums(value, spread, trained, importance)
        return PolicyLossValue(
            value.loss,
            part,
            logps.detach(),
            loss.sampled,
            loss.mask,
            sums,
            predicted.padding,
            predicted.positions,
            tuple(value.metrics),
        )

    def figures(self) -> UpdateFigures:
        """Returns what adds up the figures of its steps."""
        return UpdateFigures(kl=self.settings.beta != 0.0, weighted=self.correction != "none")
