"""Implements the clipped objectives of PPO's family, which differ in how the trainer averages what tokens cost.

With r the probability ratio of the policy to the one that sampled, a token with the advantage A costs

    -min(min(r, delta) A, clip(r, 1 - epsilon, 1 + epsilon_high) A)

(PPO, arXiv 1707.06347; delta: INTELLECT-2, 2505.07291; epsilon_high: DAPO, 2503.14476).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Gt

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
    """Returns the clipped costs of ratios.

    `ratio`: [B, T] or [B, 1]. `advantages`: [B, 1]. `epsilon`, `epsilon_high`: the clip range, 1 - epsilon to 1 +
    epsilon_high; None: the same above as below. `delta`: the largest ratio where the advantage is negative; None: no
    bound.
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
    """Refuses a bound that the clip leaves nothing to do, whatever other options a loss has. Raises OptionError."""
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


@loss(version=1, average="micro_batch", prepare=refuse_idle_delta)
def bnpo(
    tokens: LossTokens,
    *,
    epsilon: Positive = 0.2,
    epsilon_high: Positive | None = None,
    delta: Positive | None = None,
    importance_sampling_level: Level = "token",
) -> TokenCosts:
    """Clipped costs, averaged over the tokens of a micro batch.

    Its value depends on how a step is split into micro batches. The options are those of `grpo`.
    """
    return _costs(tokens, epsilon, epsilon_high, delta, importance_sampling_level)


@loss(version=1, average="constant", prepare=refuse_idle_delta)
def dr_grpo(
    tokens: LossTokens,
    *,
    epsilon: Positive = 0.2,
    epsilon_high: Positive | None = None,
    delta: Positive | None = None,
    importance_sampling_level: Level = "token",
) -> TokenCosts:
    """Clipped costs, summed up and divided by completions times the longest completion that may be sampled.

    Dr. GRPO, arXiv 2503.20783: no bias by length. The paper also divides advantages by nothing:
    `--advantage group_mean:scale=none`. The options are those of `grpo`.
    """
    return _costs(tokens, epsilon, epsilon_high, delta, importance_sampling_level)


@loss(version=1, average="batch", prepare=refuse_idle_delta)
def dapo(
    tokens: LossTokens,
    *,
    epsilon: Positive = 0.2,
    epsilon_high: Positive | None = None,
    delta: Positive | None = None,
    importance_sampling_level: Level = "token",
) -> TokenCosts:
    """Clipped costs, averaged over all tokens of the batch: each token counts the same.

    DAPO, arXiv 2503.14476, which recommends epsilon_high=0.28. The options are those of `grpo`.
    """
    return _costs(tokens, epsilon, epsilon_high, delta, importance_sampling_level)
