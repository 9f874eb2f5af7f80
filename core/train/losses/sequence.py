"""Implements objectives whose probability ratio is that of a completion, the geometric mean over its tokens."""

from __future__ import annotations

from grpo.core.train.losses.clipped import Level, Positive, clipped, refuse_idle_delta
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


@loss(version=1, average="sum", prepare=refuse_idle_delta)
def luspo(
    tokens: LossTokens,
    *,
    epsilon: Positive = 0.2,
    epsilon_high: Positive | None = None,
    delta: Positive | None = None,
    importance_sampling_level: Level = "sequence",
) -> TokenCosts:
    """Clipped costs of the ratio of each completion, times its length, averaged over completions.

    LUSPO, arXiv 2602.05261: 1/N sum_i |o_i| times GSPO's cost of o_i, so that a token of a long completion counts as
    much as one of a short completion. The options are those of `grpo`; a ratio of each token is not the paper's.
    """
    ratio = tokens.sequence_ratio() if importance_sampling_level == "sequence" else tokens.ratio()
    return clipped(ratio, tokens.advantages, epsilon, epsilon_high, delta)


@loss(version=1, average="completion")
def gmpo(tokens: LossTokens, *, epsilon: Positive = 0.4, epsilon_high: Positive | None = None) -> TokenCosts:
    """The geometric mean of clipped ratios, averaged over completions.

    GMPO, arXiv 2507.20673: -exp(1/|o| sum_t l_t) A, with l the log ratio of a token, clipped where that lowers the
    objective: min(l, epsilon_high) for A > 0, max(l, -epsilon) else. The KL term is not multiplied by a ratio.

    Options:
        epsilon: the clip range of log ratios, below 0 and, unless epsilon_high is set, above.
        epsilon_high: the clip range above 0.
    """
    high = epsilon if epsilon_high is None else epsilon_high
    apart, better = tokens.logps - tokens.old_logps, tokens.advantages > 0
    kept = apart.clamp(max=high).where(better, apart.clamp(min=-epsilon))
    return TokenCosts(
        costs=-tokens.sequence_mean(kept).exp() * tokens.advantages,
        ratio=tokens.advantages.new_ones(tokens.advantages.shape),
        low=(apart < -epsilon) & (tokens.advantages < 0),
        high=(apart > high) & better,
    )
