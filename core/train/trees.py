"""Refuses rollouts that are trees where a run cannot train all of their rows exactly."""

from __future__ import annotations

from grpo.core.train.update.objective import takes_rows
from grpo.plugins._spec.binding import BoundAdvantage, BoundLoss
from grpo.plugins.errors import UsageError

_TREE = "rollouts of this run are trees of several rows (an agent that compacts, rewrites or branches its history)"


def refuse_trees(loss: BoundLoss, advantage: BoundAdvantage, *, own_head: bool, partial: bool) -> None:
    """Refuses settings that look at rows where rollouts count. `own_head`: our output layer trains, and not TRL's."""
    if not own_head:
        raise UsageError(
            f"{_TREE}, but TRL's head averages over rows. Leave train.head='trl' out. Mixture-of-experts models always "
            "use TRL's head, so choose a dense model."
        )
    if partial:
        raise UsageError(f"{_TREE}, and --partial samples a single row part by part. Leave --partial out.")
    if advantage.spec.turns:
        raise UsageError(
            f"{_TREE}, but --advantage {advantage.name} has one advantage per turn, and turns of a tree have no single "
            "order. Choose an advantage for whole rollouts, such as --advantage rloo."
        )
    if not takes_rows(loss):
        raise UsageError(
            f"{_TREE}, but --loss {loss.name} ({loss.distribution}) changes when a completion is cut into rows. "
            "Have it use sequence_sum, sequence_mean and sequence_length of LossTokens instead of sums over a row, "
            "or choose another loss, such as --loss dapo."
        )
