"""Objectives whose probability ratio is that of a completion, the geometric mean over its tokens."""

from __future__ import annotations

from grpo.core.train.losses.clipped import Positive, clipped, refuse_idle_delta
from grpo.plugins.training import LossTokens, TokenCosts
from grpo.plugins.training_decorators import loss


@loss(version=1, average="completion", prepare=refuse_idle_delta)
def gspo(
    tokens: LossTokens,
    *,
    epsilon: Positive = 0.2,
    epsilon_high: Positive | None = None,
    delta: Positive | None = None,
) -> TokenCosts:
    """Clipped costs of the ratio of each completion, averaged over completions.

    GSPO, arXiv 2507.18071: s = (pi(o) / pi_old(o))^(1/|o|) in the place of the token's ratio; steadier for
    mixture-of-experts models. The paper clips far closer than the default: epsilon=0.0003, epsilon_high=0.0004.
    The options are those of `grpo`.
    """
    return clipped(tokens.sequence_ratio(), tokens.advantages, epsilon, epsilon_high, delta)
