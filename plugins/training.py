"""Defines what losses and advantages read and return, without importing torch.

The trainer fills `GroupScores` for an advantage and `LossTokens` for a loss. It leaves failed completions, padding and
observations out, averages costs, weighs them by the rollout correction and adds the KL term.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Average = Literal["batch", "completion", "micro_batch", "constant", "sum"]
Entropies = Literal["none", "value", "gradient"]


@dataclass(frozen=True, slots=True)
class GroupScores:
    """The scores of a batch, as an advantage reads them; float64.

    Attributes:
        totals: [groups, G] weighted sum of the rewards, NaN where a completion failed or every reward abstained.
        scores: [groups, G, R] of each reward, NaN for a failure or an abstention.
        weights: [R] of the rewards.
        turns: [groups, G, T] what each turn earned of the total, NaN after the last turn; only for an advantage that
            asks for it. What a reward says of the whole rollout is in its last turn.
    """

    totals: torch.Tensor
    scores: torch.Tensor
    weights: torch.Tensor
    turns: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class LossTokens:
    """The completions of a forward pass, as a loss reads them.

    A completion is one row, or several where an agent's rollout is a tree of calls. What belongs to a whole completion
    comes from the methods, which look at all of its rows; a sum over a row of one's own is not that of a completion.

    Attributes:
        logps: [B, T] log-probabilities under the policy, with a gradient; like the others 0 outside of the mask.
        old_logps: [B, T] under the policy that sampled, without one; the same values on the first pass over a batch.
        mask: [B, T] float, 1 for tokens that the policy chose in completions that count.
        advantages: [B, 1], or [B, T] where turns have advantages of their own.
        entropies: [B, T] of the policy in nats, where the loss asks for them.
        importance: [B, T] or [B, 1] weights that correct for a rollout engine, or None without a correction. The
            trainer multiplies costs with them, unless the loss says that it does so itself.
        owner: [B] int64, rows of one completion have the same number; None: each row is a completion.
    """

    logps: torch.Tensor
    old_logps: torch.Tensor
    mask: torch.Tensor
    advantages: torch.Tensor
    entropies: torch.Tensor | None = None
    importance: torch.Tensor | None = None
    owner: torch.Tensor | None = None

    def ratio(self) -> torch.Tensor:
        """Returns the probability ratio of the policy to the one that sampled, [B, T]."""
        return (self.logps - self.old_logps).exp()

    def sequence_ratio(self) -> torch.Tensor:
        """Returns the geometric mean of the ratio over each completion, [B, 1]."""
        return self.sequence_mean(self.logps - self.old_logps).exp()

    def sequence_mean(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the mean of [B, T] values over the tokens of each completion, [B, 1]; 0 without any."""
        return self.sequence_sum(values) / self.sequence_length()

    def sequence_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the sum of [B, T] values over the tokens of each completion, [B, 1]."""
        return over_rows(values.masked_fill(self.mask == 0, 0.0).sum(dim=1, keepdim=True), self.owner)

    def sequence_length(self) -> torch.Tensor:
        """Returns how many tokens each completion has, [B, 1], at least 1."""
        return over_rows(self.mask.sum(dim=1, keepdim=True), self.owner).clamp(min=1)


def over_rows(sums: torch.Tensor, owner: torch.Tensor | None) -> torch.Tensor:
    """Adds [B, 1] sums of rows up over the rows of each completion; each of these gets what all of them sum up to."""
    if owner is None:
        return sums
    return sums.T.expand(len(owner), -1).masked_fill(owner[:, None] != owner, 0).sum(dim=1, keepdim=True)


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """The cost of each token, with statistics; a loss without statistics may return the costs alone.

    Attributes:
        costs: [B, T], or [B, 1] for all tokens of a completion alike.
        ratio: [B, T] or [B, 1] probability ratio that the KL term is multiplied by; None: that of each token.
        low, high: [B, T] or [B, 1] bool, where a clip took the gradient away; None: nothing clips.
        metrics: name to [B, T] or [B, 1]; the mean over tokens is logged as `loss/NAME`.
    """

    costs: torch.Tensor
    ratio: torch.Tensor | None = None
    low: torch.Tensor | None = None
    high: torch.Tensor | None = None
    metrics: Mapping[str, torch.Tensor] = field(default_factory=dict)
