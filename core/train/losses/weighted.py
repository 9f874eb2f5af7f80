"""Implements objectives without a clip: weights without a gradient (`cispo`, `vespo`), and a soft gate (`sapo`)."""

from __future__ import annotations

import math

from grpo.core.train.losses.clipped import Level, Positive
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


@loss(version=1, average="batch", weighs=True)
def vespo(
    tokens: LossTokens,
    *,
    k_pos: Positive = 2.0,
    lambda_pos: Positive = 3.0,
    k_neg: Positive = 3.0,
    lambda_neg: Positive = 2.0,
) -> TokenCosts:
    """Log-probabilities weighed by a smooth function of the ratio of the whole completion, averaged over all tokens.

    VESPO, arXiv 2602.10693: -sg(f(w)) A log p, with f(w) = w^k exp(k' (1 - w)), which is 1 at w = 1, and w the product
    of the ratios of a completion's tokens, those of the correction for a rollout engine among them. k and k' (lambda)
    differ by the sign of the advantage.

    Options:
        k_pos, k_neg: how fast weights fall below w = 1.
        lambda_pos, lambda_neg: how fast they fall above.
    """
    apart = (tokens.logps - tokens.old_logps).detach().clamp(-_FAR, _FAR)
    summed = tokens.sequence_sum(apart)
    if tokens.importance is not None:
        weights = tokens.importance.log().clamp(_LEAST, _FAR)
        summed = summed + (tokens.sequence_sum(weights) if weights.shape == apart.shape else weights)
    log_ratio, better = summed.clamp(_LEAST, _FAR), tokens.advantages >= 0
    power = better * k_pos + ~better * k_neg
    decay = better * lambda_pos + ~better * lambda_neg
    weight = (decay + power * log_ratio - decay * log_ratio.exp()).exp()
    return TokenCosts(
        costs=-weight * tokens.advantages * tokens.logps, ratio=tokens.ratio(), metrics={"weight": weight}
    )


_FAR, _LEAST = 20.0, math.log(1e-8)  # the nats beyond which a ratio grows and falls no further


@loss(version=1, average="completion")
def sapo(
    tokens: LossTokens,
    *,
    temperature_pos: Positive = 1.0,
    temperature_neg: Positive = 1.05,
    importance_sampling_level: Level = "token",
) -> TokenCosts:
    """A soft gate in the place of the clip, averaged over each completion and then over completions.

    SAPO, arXiv 2511.20347: -4/t sigmoid(t (r - 1)) A, whose gradient is that of -r A at r = 1 and falls off smoothly on
    both sides; t is one temperature for A > 0 and another, a little higher, else.

    Options:
        temperature_pos, temperature_neg: how fast the gradient falls off.
        importance_sampling_level: the ratio of each token, or its geometric mean over a completion.
    """
    ratio = tokens.sequence_ratio() if importance_sampling_level == "sequence" else tokens.ratio()
    better = tokens.advantages > 0
    temperature = better * temperature_pos + ~better * temperature_neg
    return TokenCosts(-(temperature * (ratio - 1)).sigmoid() * 4 / temperature * tokens.advantages, ratio=ratio)
