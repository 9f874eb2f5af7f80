"""Implements the clipped objectives of PPO's family, which differ in how tokens are averaged.

With r the probability ratio of the policy to the sampler, a token with the advantage A costs

    -min(min(r, delta) A, clip(r, 1 - epsilon, 1 + epsilon_high) A)

(PPO, arXiv 1707.06347; delta: INTELLECT-2, 2505.07291; epsilon_high: DAPO, 2503.14476). In `gspo`, `luspo` and `gmpo` r
is the geometric mean over a completion's tokens; `entropy_bonus` and `top_entropy` use the policy's entropy besides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Gt, Le

from grpo.plugins.errors import OptionError
from grpo.plugins.training import LossTokens, TokenCosts
from grpo.plugins.training_decorators import loss

if TYPE_CHECKING:
    import torch

Positive = Annotated[float, Gt(0)]
Level = Literal["token", "sequence"]


def clipped(
    ratio: torch.Tensor, advantages: torch.Tensor, epsilon: float, epsilon_high: float | None, delta: float | None
) -> TokenCosts:
    """Returns the costs of ratios [B, T] or [B, 1] with advantages [B, 1], clipped to 1 - epsilon and 1 + epsilon_high.

    `epsilon_high`: None for epsilon. `delta`: the largest ratio where the advantage is negative; None: no bound.
    """
    high = epsilon if epsilon_high is None else epsilon_high
    bounded = ratio.clamp(1 - epsilon, 1 + high)
    limited = ratio if delta is None else ratio.clamp(max=delta)
    return TokenCosts(
        costs=-(limited * advantages).minimum(bounded * advantages),
        ratio=ratio,
        low=(ratio < 1 - epsilon) & (advantages < 0),
        high=(ratio > 1 + high) & (advantages > 0),
    )


def refuse_idle_delta(*, epsilon: float, epsilon_high: float | None, delta: float | None, **others: object) -> None:
    """Raises OptionError for a `delta` that the clip range makes void."""
    high = epsilon if epsilon_high is None else epsilon_high
    if delta is not None and delta <= 1 + high:
        raise OptionError(f"delta {delta} must be above 1 + epsilon_high = {1 + high}, or it clips first.")


def _costs(
    tokens: LossTokens, epsilon: float, epsilon_high: float | None, delta: float | None, level: Level
) -> TokenCosts:
    ratio = tokens.sequence_ratio() if level == "sequence" else tokens.ratio()
    return clipped(ratio, tokens.advantages, epsilon, epsilon_high, delta)


@loss(version=1, average="completion", prepare=refuse_idle_delta)
def grpo(
    tokens: LossTokens,
    *,
    epsilon: Positive = 0.2,
    epsilon_high: Positive | None = None,
    delta: Positive | None = None,
    importance_sampling_level: Level = "token",
) -> TokenCosts:
    """Clipped costs, averaged over each completion and then over completions.

    GRPO, arXiv 2402.03300: 1/N sum_i 1/|o_i| sum_t of -min(min(r, delta) A, clip(r, 1 - epsilon, 1 + epsilon_high) A).
    A token of a short completion counts more than one of a long completion.

    Options:
        epsilon: the clip range of the ratio r, below 1 and, unless epsilon_high is set, above.
        epsilon_high: the clip range above 1.
        delta: an upper bound of the ratio where the advantage is negative (INTELLECT-2).
        importance_sampling_level: the ratio of each token, or its geometric mean over a completion.
    """
    return _costs(tokens, epsilon, epsilon_high, delta, importance_sampling_level)


bnpo = replace(
    grpo,
    name="bnpo",
    average="micro_batch",
    doc="""Clipped costs, averaged over the tokens of a micro batch.

Its value depends on how a step is split into micro batches. The options are those of `grpo`.""",
)
dr_grpo = replace(
    grpo,
    name="dr_grpo",
    average="constant",
    doc="""Clipped costs, summed up and divided by completions times the longest completion that may be sampled.

Dr. GRPO, arXiv 2503.20783: no bias by length. The paper also divides advantages by nothing:
`--advantage group_mean:scale=none`. The options are those of `grpo`.""",
)
dapo = replace(
    grpo,
    name="dapo",
    average="batch",
    doc="""Clipped costs, averaged over all tokens of the batch: each token counts the same.

DAPO, arXiv 2503.14476, which recommends epsilon_high=0.28. The options are those of `grpo`.""",
)


@loss(version=1, average="completion", prepare=refuse_idle_delta)
def gspo(
    tokens: LossTokens, *, epsilon: Positive = 0.2, epsilon_high: Positive | None = None, delta: Positive | None = None
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
    return _costs(tokens, epsilon, epsilon_high, delta, importance_sampling_level)


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
