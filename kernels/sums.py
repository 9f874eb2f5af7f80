"""Keeps the running sums of a softmax without its target, for each row, over a part of the vocabulary.

With r the vocabulary without the target t, the sums give, in logits z and their largest value m over r:

    S = sum_r exp(z - m)        X = sum_r exp(z - m) (z - m)        d = (m + log S) - z_t
    logp = -softplus(d)         1 - p_t = sigmoid(d)
    entropy = (binary entropy of p_t) + (1 - p_t) (log S - X / S)

Without the target they are exact to rounding at confident tokens, where z_t - logsumexp(z) and 1 - exp(logp) would be
differences of nearly equal numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn.functional import logsigmoid

LOWEST = -1e29  # below every logit, and above what a target is replaced by
TAKEN_OUT = -1e30


class Sums(NamedTuple):
    """Running sums of n rows; all [n] in the dtype of sums."""

    peak: torch.Tensor  # m
    total: torch.Tensor  # S
    spread: torch.Tensor  # X
    target: torch.Tensor  # z_t
    slope: torch.Tensor  # 1 - tanh(y_t / softcap)^2, the derivative of the softcap at the target
    shrink: torch.Tensor  # what the last fold multiplied S by, for sums that are kept elsewhere

    @classmethod
    def empty(cls, count: int, like: torch.Tensor, dtype: torch.dtype) -> Sums:
        """Sums over nothing."""
        blank = torch.zeros(5, count, dtype=dtype, device=like.device)
        peak = torch.full((count,), LOWEST, dtype=dtype, device=like.device)
        blank[3].fill_(1.0)
        return cls(peak, *blank)

    def part(self, first: int, last: int) -> Sums:
        """Returns the rows first..last-1 as a view."""
        return Sums._make(rows[first:last] for rows in self)

    def margin(self) -> torch.Tensor:
        """d, the log-odds of the rest of the vocabulary against the target."""
        return self.peak + self.total.log() - self.target

    def logp(self) -> torch.Tensor:
        """log p_t, never above 0."""
        return logsigmoid(-self.margin())

    def missed(self) -> torch.Tensor:
        """1 - p_t."""
        return self.margin().sigmoid()

    def log_total(self) -> torch.Tensor:
        """logsumexp over the whole vocabulary."""
        return torch.logaddexp(self.peak + self.total.log(), self.target)

    def entropy(self) -> torch.Tensor:
        """Entropy of the whole distribution in nats; needs `spread`."""
        margin = self.margin()
        missed = margin.sigmoid()
        total = self.total.clamp(min=torch.finfo(self.total.dtype).tiny)
        inner = torch.where(self.total > 0, self.total.log() - self.spread / total, 0.0)
        own = -torch.sigmoid(-margin) * logsigmoid(-margin)
        return own + torch.where(missed > 0, missed * (inner - logsigmoid(margin)), 0.0)


class Known(NamedTuple):
    """What is known of each of n rows when the backward pass starts; `kept` is [n, V], the rest [n]."""

    target: torch.Tensor
    log_total: torch.Tensor
    missed: torch.Tensor
    entropy: torch.Tensor | None  # only with `grad_entropy`
    grad_logp: torch.Tensor  # in the dtype of sums, as `grad_entropy`
    grad_entropy: torch.Tensor | None
    kept: torch.Tensor | None = None  # logits

    def part(self, first: int, last: int) -> Known:
        """Returns the rows first..last-1 as a view."""
        return Known._make(rows if rows is None else rows[first:last] for rows in self)
