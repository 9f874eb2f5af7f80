"""Implements objectives with the policy's entropy: a bonus for it, or only the tokens with most of it."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt, Le

from grpo.core.train.losses.clipped import Positive, clipped, refuse_idle_delta
from grpo.plugins.training import LossTokens, TokenCosts
from grpo.plugins.training_decorators import loss


@loss(version=1, average="batch", entropies="gradient", every_row=True, weighs=True, prepare=refuse_idle_delta)
def entropy_bonus(
    tokens: LossTokens,
    *,
    coefficient: Positive = 0.001,
    epsilon: Positive = 0.2,
    epsilon_high: Positive | None = None,
    delta: Positive | None = None,
) -> TokenCosts:
    """The cost of `dapo` less a share of the policy's entropy, averaged over all tokens of the batch.

    Entropy regularisation (as in Skywork-OR1, arXiv 2505.22312, with a fixed coefficient): c - coefficient H, with H
    the entropy of the policy at a token, in nats. It counts for completions without an advantage too, and a correction
    for a rollout engine does not weigh it. Takes more time than other losses: the entropy needs a gradient.

    Options:
        coefficient: the weight of the entropy.
        epsilon, epsilon_high, delta: those of `dapo`.
    """
    assert tokens.entropies is not None
    token_costs = clipped(tokens.ratio(), tokens.advantages, epsilon, epsilon_high, delta)
    costs = token_costs.costs if tokens.importance is None else token_costs.costs * tokens.importance
    return TokenCosts(costs - coefficient * tokens.entropies, token_costs.ratio, token_costs.low, token_costs.high)


@loss(version=1, average="batch", entropies="value", every_row=True, prepare=refuse_idle_delta)
def top_entropy(
    tokens: LossTokens,
    *,
    share: Annotated[float, Gt(0), Le(1)] = 0.2,
    epsilon: Positive = 0.2,
    epsilon_high: Positive | None = None,
    delta: Positive | None = None,
) -> TokenCosts:
    """The cost of `dapo`, of the tokens at which the policy hesitates most alone.

    High-entropy tokens, arXiv 2506.01939: tokens below the quantile 1 - share of the entropies of the forward pass (a
    micro batch of one process) cost nothing. Averages still count them. Completions without an advantage are computed
    too, for their entropies.

    Options:
        share: which part of the tokens learns.
        epsilon, epsilon_high, delta: those of `dapo`.
    """
    assert tokens.entropies is not None
    costs = clipped(tokens.ratio(), tokens.advantages, epsilon, epsilon_high, delta)
    counted = tokens.entropies[tokens.mask > 0]
    learns = tokens.entropies >= (counted.quantile(1 - share) if len(counted) else 0.0)
    return TokenCosts(costs.costs * learns, costs.ratio, costs.low, costs.high, {"learning": learns})
