"""Implements objectives without a clip: the further a ratio is from 1, the less its token pulls."""

from __future__ import annotations

from grpo.core.train.losses.clipped import Level, Positive
from grpo.plugins.training import LossTokens, TokenCosts
from grpo.plugins.training_decorators import loss


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
