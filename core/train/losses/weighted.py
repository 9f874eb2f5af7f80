"""Objectives that weigh log-probabilities: the weight has no gradient, so that no token is clipped out."""

from __future__ import annotations

from grpo.core.train.losses.clipped import Positive
from grpo.plugins.training import LossTokens, TokenCosts
from grpo.plugins.training_decorators import loss


@loss(version=1, average="batch")
def cispo(tokens: LossTokens, *, epsilon_high: Positive) -> TokenCosts:
    """Log-probabilities weighed by the clipped ratio, averaged over all tokens of the batch.

    CISPO, arXiv 2506.13585: -sg(min(r, epsilon_high)) A log p, with sg for no gradient and r the ratio of a token.

    Options:
        epsilon_high: the largest weight of a token, for example 5 (ScaleRL, 2510.13786).
    """
    ratio = tokens.ratio()
    return TokenCosts(
        costs=-ratio.clamp(max=epsilon_high).detach() * tokens.advantages * tokens.logps,
        ratio=ratio,
        high=(ratio > epsilon_high) & (tokens.advantages > 0),
    )
