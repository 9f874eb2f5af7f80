"""Computes the clipped-ratio policy loss of each token.

Keep the imports light: every grpo command that lists plugins makes them, and tensors have all methods that are needed.
The trainer leaves out what does not count, averages, adds the KL term and corrects for a rollout engine.
"""

from __future__ import annotations

from grpo import LossSpec, LossTokens, TokenCosts, hookimpl, loss

grpo_contract = 1


@loss(version=1, average="batch")
def clipped_ratio(tokens: LossTokens, *, epsilon: float = 0.2) -> TokenCosts:
    """-min(r A, clip(r, 1 - epsilon, 1 + epsilon) A), with r the ratio of the policy to the one that sampled.

    Args:
        tokens: log-probabilities [B, T], advantages [B, 1] and a mask [B, T].
        epsilon: how far a ratio may be from 1 before its token pulls no further.
    """
    ratio = tokens.ratio()
    bounded = ratio.clamp(1 - epsilon, 1 + epsilon)
    return TokenCosts(
        costs=-(ratio * tokens.advantages).minimum(bounded * tokens.advantages),
        low=(ratio < 1 - epsilon) & (tokens.advantages < 0),
        high=(ratio > 1 + epsilon) & (tokens.advantages > 0),
    )


@hookimpl
def grpo_losses() -> list[LossSpec]:
    """Offers the loss to grpo."""
    return [clipped_ratio]
