"""The objectives: log-probabilities [B, T] and advantages [B] in, one loss out. Plain torch, one registry.

With r the probability ratio of the policy to the one that sampled, per token or (GSPO) per completion, a token costs

    clipped:    -min(min(r, delta) A, clip(r, 1 - epsilon, 1 + epsilon_high) A)       (PPO; delta: INTELLECT-2)
    weighted:   -min(r, epsilon_high) A log p, the weight without a gradient          (CISPO, arXiv 2506.13585)

plus beta times the KL divergence from the reference, exp(q - p) - (q - p) - 1 of their log-probabilities, times r where
that is not switched off; the factor makes its gradient that of the divergence itself (DeepSeek-V3.2, arXiv
2512.02556).

What the names of `LOSSES` choose is how token costs are averaged: over each completion and then over completions
(GRPO, GSPO), over the tokens of the micro batch (BNPO), over a constant length (Dr. GRPO), over the tokens of the
whole batch (DAPO, CISPO). All completions count, those that are left out of a forward pass included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from grpo.core.config.sections import Correction, LossSection


@dataclass(frozen=True, slots=True)
class Tokens:
    """The completions of a forward pass.

    Attributes:
        logps: [B, T] float32 under the policy, with a gradient.
        mask: [B, T], 1 for tokens of completions that count.
        advantages: [B].
        old_logps: [B, T] under the policy that sampled; None: it is this policy, exactly.
        ref_logps: [B, T] under the reference; only with beta.
        importance: [B, T] or [B, 1] weights from `importance_weights`, or None.
    """

    logps: torch.Tensor
    mask: torch.Tensor
    advantages: torch.Tensor
    old_logps: torch.Tensor | None = None
    ref_logps: torch.Tensor | None = None
    importance: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """What averages are taken over.

    Attributes:
        rows: completions of the micro batch.
        tokens: their tokens that count.
        batch_tokens: such tokens of the optimizer step, per process.
        longest: the constant length of Dr. GRPO.
        accumulation: micro batches per optimizer step.
    """

    rows: int
    tokens: torch.Tensor
    batch_tokens: torch.Tensor
    longest: int
    accumulation: int


@dataclass(frozen=True, slots=True)
class Objective:
    """What `policy_loss` minimises; the settings are those of `LossSection`."""

    name: str
    epsilon: float
    epsilon_high: float
    delta: float | None
    beta: float
    level: Literal["token", "sequence"]
    corrects_kl: bool = True


def objective_of(loss: LossSection) -> Objective:
    """Returns the objective that a configuration describes."""
    high = loss.epsilon if loss.epsilon_high is None else loss.epsilon_high
    return Objective(loss.type, loss.epsilon, high, loss.delta, loss.beta, loss.level, loss.use_bias_correction_kl)


@dataclass(frozen=True, slots=True)
class LossValue:
    """A loss and what is logged about it.

    Attributes:
        loss: scalar with a gradient, already divided for accumulation.
        kl: [B, T], or None without beta.
        clipped_low, clipped_high: [B, T] or [B, 1] bool, where the clip took the gradient away.
    """

    loss: torch.Tensor
    kl: torch.Tensor | None
    clipped_low: torch.Tensor
    clipped_high: torch.Tensor


Average = Callable[[torch.Tensor, torch.Tensor, Counts], torch.Tensor]


def per_completion(costs: torch.Tensor, mask: torch.Tensor, counts: Counts) -> torch.Tensor:
    means = (costs * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    return means.sum() / (counts.rows * counts.accumulation)


def per_micro_batch(costs: torch.Tensor, mask: torch.Tensor, counts: Counts) -> torch.Tensor:
    return (costs * mask).sum() / (counts.tokens.clamp(min=1) * counts.accumulation)


def per_constant(costs: torch.Tensor, mask: torch.Tensor, counts: Counts) -> torch.Tensor:
    return (costs * mask).sum() / (counts.rows * counts.longest * counts.accumulation)


def per_batch(costs: torch.Tensor, mask: torch.Tensor, counts: Counts) -> torch.Tensor:
    return (costs * mask).sum() / counts.batch_tokens.clamp(min=1)


LOSSES: Mapping[str, Average] = {
    "grpo": per_completion,
    "bnpo": per_micro_batch,
    "dr_grpo": per_constant,
    "dapo": per_batch,
    "cispo": per_batch,
    "gspo": per_completion,
}


def policy_loss(objective: Objective, tokens: Tokens, counts: Counts) -> LossValue:
    """Computes the loss of one forward pass.

    Args:
        objective: one of `LOSSES` with its settings.
        tokens: the completions.
        counts: what averages are taken over.
    """
    mask = tokens.mask.to(tokens.logps.dtype)
    advantages = tokens.advantages[:, None]
    old = tokens.logps.detach() if tokens.old_logps is None else tokens.old_logps
    log_ratio = tokens.logps - old
    if objective.level == "sequence":
        log_ratio = ((log_ratio * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1))[:, None]
    ratio = log_ratio.exp()
    if objective.name == "cispo":
        costs = -ratio.clamp(max=objective.epsilon_high).detach() * advantages * tokens.logps
        low = torch.zeros_like(ratio, dtype=torch.bool)
        high = (ratio > objective.epsilon_high) & (advantages > 0)
    else:
        bounded = ratio.clamp(1 - objective.epsilon, 1 + objective.epsilon_high)
        limited = ratio if objective.delta is None else ratio.clamp(max=objective.delta)
        costs = -torch.minimum(limited * advantages, bounded * advantages)
        low = (ratio < 1 - objective.epsilon) & (advantages < 0)
        high = (ratio > 1 + objective.epsilon_high) & (advantages > 0)
    if tokens.importance is not None:
        costs = costs * tokens.importance
    kl = None
    if objective.beta and tokens.ref_logps is not None:
        apart = tokens.ref_logps - tokens.logps
        kl = apart.exp() - apart - 1
        if objective.corrects_kl:
            kl = kl * ratio
        costs = costs + objective.beta * kl
    costs = costs.expand_as(mask)
    return LossValue(LOSSES[objective.name](costs, mask, counts), kl, low, high)


def importance_weights(
    logps: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor, correction: Correction, cap: float
) -> torch.Tensor | None:
    """Weights that correct for a rollout engine whose probabilities differ from the policy's.

    The ratio pi / mu of the policy to the engine (truncated importance sampling), per token or as the product over a
    completion. A ratio above the cap is cut to it (truncate), or takes its tokens out of the loss (mask).

    Args:
        logps: [B, T] under the policy that sampled, computed by training; no gradient flows through it.
        sampled: [B, T] as the engine reported them; NaN where it did not, which corrects nothing.
        mask: [B, T].
        correction: which of the four, or none.
        cap: the largest weight.

    Returns:
        [B, T] or [B, 1], or None for no correction.
    """
    if correction == "none":
        return None
    apart = ((logps.detach() - sampled).nan_to_num(nan=0.0)) * mask
    if correction.startswith("sequence"):
        apart = apart.sum(dim=1, keepdim=True)
    ratio = apart.exp()
    return ratio.clamp(max=cap) if correction.endswith("truncate") else ratio.masked_fill(ratio > cap, 0.0)


@dataclass(frozen=True, slots=True)
class PassLoss:
    """The loss of a forward pass as a function of its log-probabilities; fields as in `Tokens`.

    Attributes:
        objective: what is minimised.
        counts: what averages are taken over.
        sampled: [B, T] as the rollout engine reported them.
        correction, cap: of `importance_weights`.
    """

    objective: Objective
    counts: Counts
    mask: torch.Tensor
    advantages: torch.Tensor
    old_logps: torch.Tensor | None
    ref_logps: torch.Tensor | None
    sampled: torch.Tensor
    correction: Correction
    cap: float

    def __call__(self, logps: torch.Tensor) -> tuple[LossValue, torch.Tensor | None]:
        """Returns the loss of log-probabilities [B, T], and the weights of the correction."""
        policy = logps.detach() if self.old_logps is None else self.old_logps
        importance = importance_weights(policy, self.sampled, self.mask, self.correction, self.cap)
        tokens = Tokens(logps, self.mask, self.advantages, self.old_logps, self.ref_logps, importance)
        return policy_loss(self.objective, tokens, self.counts), importance

    @property
    def per_token(self) -> bool:
        """Whether dL/dlogp of a token follows from its log-probability alone."""
        return self.objective.level == "token" and not self.correction.startswith("sequence")

    def coefficients(self, logps: torch.Tensor) -> torch.Tensor:
        """Returns dL/dlogp [B, T] from the values of log-probabilities."""
        with torch.enable_grad():
            leaf = logps.detach().requires_grad_()
            return torch.autograd.grad(self(leaf)[0].loss, leaf)[0]
