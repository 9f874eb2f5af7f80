"""Computes the objectives from log-probabilities [B, T] and advantages [B]. Plain torch.

To the token costs of the run's loss (core/train/losses/, or a plugin's) this adds

- the weights that correct for a rollout engine, as factors;
- beta times the KL divergence from the reference, exp(q - p) - (q - p) - 1 of their log-probabilities, times the ratio
  r unless switched off, which makes its gradient that of the divergence itself (DeepSeek-V3.2, 2512.02556);
- the average, in one of the ways of `AVERAGES`, over all completions, also those without a forward pass.

A loss is the same however a completion is cut into rows: mean, ratio and weight of a tree are those of all its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from grpo.core.config.sections import Correction
from grpo.plugins._spec.binding import BoundAdvantage, BoundLoss
from grpo.plugins.errors import PluginError, UsageError
from grpo.plugins.training import Average, LossTokens, TokenCosts, over_rows

_TREE = "rollouts of this run are trees of several rows (an agent that compacts, rewrites or branches its history)"


@dataclass(frozen=True, slots=True)
class Tokens:
    logps: torch.Tensor  # [B, T] float32 under the policy, with a gradient
    mask: torch.Tensor  # [B, T], 1 for tokens of completions that count
    advantages: torch.Tensor  # [B], or [B, T] where turns have their own
    old_logps: torch.Tensor | None = None  # [B, T] under the policy that sampled; None: it is this policy, exactly
    ref_logps: torch.Tensor | None = None  # [B, T] under the reference; only with beta
    importance: torch.Tensor | None = None  # [B, T] or [B, 1] weights from `importance_weights`, or None
    entropies: torch.Tensor | None = None  # [B, T], where the loss reads them
    owner: torch.Tensor | None = None  # [B] the number of each row's completion; None: each row is one


@dataclass(frozen=True, slots=True)
class Counts:
    rollouts: int  # completions of the micro batch
    tokens: torch.Tensor  # their tokens that count
    batch_tokens: torch.Tensor  # such tokens of the optimizer step, per process
    longest: int  # the constant length of Dr. GRPO
    accumulation: int  # micro batches per optimizer step


@dataclass(frozen=True, slots=True)
class Objective:
    loss: BoundLoss
    beta: float = 0.0
    corrects_kl: bool = True


@dataclass(frozen=True, slots=True)
class LossValue:
    loss: torch.Tensor  # scalar with a gradient, already divided for accumulation
    kl: torch.Tensor | None  # [B, T], or None without beta
    # clipped_low, clipped_high: [B, T] or [B, 1] bool, where the clip took the gradient away; None: nothing clips
    clipped_low: torch.Tensor | None
    clipped_high: torch.Tensor | None
    # name to [B, T] or [B, 1], what else the loss says about itself
    metrics: Mapping[str, torch.Tensor] = field(default_factory=dict)


Averaged = Callable[[torch.Tensor, LossTokens, Counts], torch.Tensor]  # costs are 0 outside of the mask


def per_completion(costs: torch.Tensor, tokens: LossTokens, counts: Counts) -> torch.Tensor:
    means = costs.sum(dim=1, keepdim=True) / tokens.sequence_length()
    return means.sum() / (counts.rollouts * counts.accumulation)


def summed(costs: torch.Tensor, tokens: LossTokens, counts: Counts) -> torch.Tensor:
    return costs.sum() / (counts.rollouts * counts.accumulation)


def per_micro_batch(costs: torch.Tensor, tokens: LossTokens, counts: Counts) -> torch.Tensor:
    return costs.sum() / (counts.tokens.clamp(min=1) * counts.accumulation)


def per_constant(costs: torch.Tensor, tokens: LossTokens, counts: Counts) -> torch.Tensor:
    return costs.sum() / (counts.rollouts * counts.longest * counts.accumulation)


def per_batch(costs: torch.Tensor, tokens: LossTokens, counts: Counts) -> torch.Tensor:
    return costs.sum() / counts.batch_tokens.clamp(min=1)


AVERAGES: Mapping[Average, Averaged] = {
    "completion": per_completion,
    "sum": summed,
    "micro_batch": per_micro_batch,
    "constant": per_constant,
    "batch": per_batch,
}


def policy_loss(objective: Objective, tokens: Tokens, counts: Counts) -> LossValue:
    """Computes the loss of one forward pass. Raises PluginError if the loss returned no costs of these tokens."""
    mask = tokens.mask.to(tokens.logps.dtype)
    outside = mask == 0
    # Neither what stands there nor what a loss makes of it, NaN or infinity, gets into a sum or a gradient.
    logps = tokens.logps.masked_fill(outside, 0.0)
    old = logps.detach() if tokens.old_logps is None else tokens.old_logps.masked_fill(outside, 0.0)
    entropies = None if tokens.entropies is None else tokens.entropies.masked_fill(outside, 0.0)
    worth = tokens.advantages if tokens.advantages.ndim == 2 else tokens.advantages[:, None]
    read = LossTokens(logps, old, mask, worth, entropies, tokens.importance, tokens.owner)
    token_costs = objective.loss(read)
    costs = _costs(objective.loss, token_costs, mask)
    if tokens.importance is not None and not objective.loss.spec.weighs:
        costs = costs * tokens.importance
    kl = None
    if objective.beta and tokens.ref_logps is not None:
        apart = tokens.ref_logps.masked_fill(outside, 0.0) - logps
        kl = apart.exp() - apart - 1
        if objective.corrects_kl:
            kl = kl * ((logps - old).exp() if token_costs.ratio is None else token_costs.ratio)
        costs = costs + objective.beta * kl
    loss = AVERAGES[objective.loss.spec.average](costs.expand_as(mask).masked_fill(outside, 0.0), read, counts)
    return LossValue(loss, kl, token_costs.low, token_costs.high, token_costs.metrics)


def _costs(loss: BoundLoss, token_costs: TokenCosts, mask: torch.Tensor) -> torch.Tensor:
    costs = token_costs.costs
    rows, columns = mask.shape
    if isinstance(costs, torch.Tensor) and costs.shape in ((rows, columns), (rows, 1)):
        return costs
    what = f"costs of shape {tuple(costs.shape)}" if isinstance(costs, torch.Tensor) else type(costs).__name__
    raise PluginError(
        f"loss '{loss.name}' ({loss.distribution}) returned {what} for {rows} completions of {columns} tokens. Return "
        f"what each token costs, [{rows}, {columns}] or [{rows}, 1]; the trainer averages."
    )


def importance_weights(
    logps: torch.Tensor,
    sampled: torch.Tensor,
    mask: torch.Tensor,
    correction: Correction,
    cap: float,
    floor: float = 0.0,
    owner: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Returns weights that correct for an engine whose probabilities differ from the policy's; None for no correction.

    The ratio pi / mu of the policy to the engine (truncated importance sampling), per token, as the product over a
    completion (sequence) or its geometric mean (geometric). Outside floor to cap it is cut (truncate), or its tokens
    leave the loss (mask; per token with a floor it is IcePop, arXiv 2510.18855). `logps`: [B, T] under the policy that
    sampled, computed by training; detached. `sampled`: [B, T] from the engine; NaN corrects nothing. `mask`: [B, T].
    `owner`: [B] the completion of each row; None: each row is one. Returns [B, T] or [B, 1].
    """
    if correction == "none":
        return None
    apart = ((logps.detach() - sampled).nan_to_num(nan=0.0)) * mask
    if not correction.startswith("token"):
        apart = over_rows(apart.sum(dim=1, keepdim=True), owner)
    if correction.startswith("geometric"):
        apart = apart / over_rows(mask.sum(dim=1, keepdim=True), owner).clamp(min=1)
    ratio = apart.exp()
    if correction.endswith("truncate"):
        return ratio.clamp(min=floor, max=cap)
    return ratio.masked_fill((ratio > cap) | (ratio < floor), 0.0)


@dataclass(frozen=True, slots=True)
class PassLoss:
    """The loss of a forward pass as a function of its log-probabilities; fields as in `Tokens`."""

    objective: Objective
    counts: Counts
    mask: torch.Tensor
    advantages: torch.Tensor
    old_logps: torch.Tensor | None
    ref_logps: torch.Tensor | None
    sampled: torch.Tensor  # [B, T] as the rollout engine reported them
    correction: Correction
    cap: float
    floor: float = 0.0
    owner: torch.Tensor | None = None

    def __call__(
        self, logps: torch.Tensor, entropies: torch.Tensor | None = None
    ) -> tuple[LossValue, torch.Tensor | None]:
        """Returns the loss of log-probabilities [B, T], and the weights of the correction."""
        policy = logps.detach() if self.old_logps is None else self.old_logps
        importance = importance_weights(
            policy, self.sampled, self.mask, self.correction, self.cap, self.floor, self.owner
        )
        tokens = Tokens(
            logps, self.mask, self.advantages, self.old_logps, self.ref_logps, importance, entropies, self.owner
        )
        return policy_loss(self.objective, tokens, self.counts), importance

    def coefficients(self, logps: torch.Tensor) -> torch.Tensor:
        """Returns dL/dlogp [B, T] from the values of log-probabilities."""
        with torch.enable_grad():
            leaf = logps.detach().requires_grad_()
            return torch.autograd.grad(self(leaf)[0].loss, leaf)[0]


def try_loss(loss: BoundLoss) -> None:
    """Calls a loss on two made-up completions. Raises Exception."""
    logps = torch.full((2, 4), -0.5)
    entropies = torch.ones_like(logps) if loss.spec.entropies != "none" else None
    tokens = LossTokens(logps, logps - 0.1, torch.ones_like(logps), torch.tensor([[1.0], [-1.0]]), entropies)
    _costs(loss, loss(tokens), tokens.mask)


def takes_turns(loss: BoundLoss) -> bool:
    """Returns whether a token learns from its own advantage and from no other's, tried on a few made-up tokens."""
    generator = torch.Generator().manual_seed(0)
    logps = -torch.rand(2, 4, generator=generator, dtype=torch.float64) - 0.5
    entropies = torch.ones_like(logps) if loss.spec.entropies != "none" else None

    def gradient(worth: torch.Tensor) -> torch.Tensor:
        leaf = logps.clone().requires_grad_()
        tokens = LossTokens(leaf, logps - 0.1, torch.ones_like(logps), worth, entropies)
        return torch.autograd.grad(_costs(loss, loss(tokens), tokens.mask).expand_as(logps).sum(), leaf)[0]

    worth = torch.tensor([[1.0, 1.0, -0.5, -0.5], [0.5, 0.5, 0.25, -1.0]], dtype=torch.float64)
    alone = gradient(worth)
    for token in range(worth.shape[1]):
        others = torch.arange(worth.shape[1]) != token
        changed = worth.clone()
        changed[:, token] *= -2
        if not torch.equal(alone[:, others], gradient(changed)[:, others]):
            return False
    return True


def takes_rows(loss: BoundLoss) -> bool:
    """Returns whether a completion costs the same however it is cut into rows, tried on a few made-up tokens."""
    generator = torch.Generator().manual_seed(0)
    logps, apart, spread = (torch.rand(10, generator=generator, dtype=torch.float64) for _ in range(3))

    def gradient(rows: Sequence[range], owner: Sequence[int]) -> torch.Tensor:
        places = torch.tensor([[*row, *[0] * (6 - len(row))] for row in rows])
        leaf = (-logps - 0.1).requires_grad_()
        tokens = Tokens(
            logps=leaf[places],
            mask=torch.tensor([[1] * len(row) + [0] * (6 - len(row)) for row in rows]),
            advantages=torch.tensor([1.0, -0.5], dtype=torch.float64)[list(owner)],
            old_logps=(leaf.detach() - 0.4 * apart)[places],
            importance=(0.5 + spread)[places] if loss.spec.weighs else None,
            entropies=spread[places] if loss.spec.entropies != "none" else None,
            owner=torch.tensor(owner),
        )
        counts = Counts(2, tokens.mask.sum(), tokens.mask.sum(), longest=8, accumulation=1)
        return torch.autograd.grad(policy_loss(Objective(loss), tokens, counts).loss, leaf)[0]

    whole = gradient([range(6), range(6, 10)], [0, 1])
    cut = gradient([range(2), range(2, 6), range(6, 9), range(9, 10)], [0, 0, 1, 1])
    return torch.allclose(whole, cut, rtol=1e-9, atol=1e-12)


def is_per_token(loss: BoundLoss, correction: Correction) -> bool:
    """Returns whether dL/dlogp of a token depends on its own alone, by a trial; a wrong answer costs only time."""
    if loss.spec.entropies != "none" or correction.startswith(("sequence", "geometric")):
        return False
    generator = torch.Generator().manual_seed(0)
    logps = -torch.rand(4, 6, generator=generator, dtype=torch.float64) - 0.5
    old = logps + 0.3 * torch.randn(4, 6, generator=generator, dtype=torch.float64)
    some = torch.rand(4, 6, generator=generator) < 0.5
    mask = torch.ones(4, 6)
    counts = Counts(rollouts=4, tokens=mask.sum(), batch_tokens=mask.sum(), longest=6, accumulation=1)
    for known in (None, old):
        advantages = torch.tensor([1.0, -1.0, 0.5, -0.5], dtype=torch.float64)
        tried = PassLoss(Objective(loss), counts, mask, advantages, known, None, old, correction, cap=2.0)
        derivatives = tried.coefficients(logps.masked_fill(~some, 0.0))[some]
        if not torch.equal(derivatives, tried.coefficients(logps)[some]):
            return False
    return True


def refuse_trees(loss: BoundLoss, advantage: BoundAdvantage, *, own_head: bool, partial: bool) -> None:
    """Refuses settings that look at rows where rollouts count. `own_head`: our output layer trains, not TRL's."""
    if not own_head:
        raise UsageError(
            f"{_TREE}, but TRL's head averages over rows. Leave train.head='trl' out. Mixture-of-experts models always "
            "use TRL's head, so choose a dense model."
        )
    if partial:
        raise UsageError(f"{_TREE}, and --partial samples a single row part by part. Leave --partial out.")
    if advantage.spec.turns:
        raise UsageError(
            f"{_TREE}, but --advantage {advantage.name} has one advantage per turn, and turns of a tree have no single "
            "order. Choose an advantage for whole rollouts, such as --advantage rloo."
        )
    if not takes_rows(loss):
        raise UsageError(
            f"{_TREE}, but --loss {loss.name} ({loss.distribution}) changes when a completion is cut into rows. "
            "Have it use sequence_sum, sequence_mean and sequence_length of LossTokens instead of sums over a row, "
            "or choose another loss, such as --loss dapo."
        )
