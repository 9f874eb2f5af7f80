"""What other rewards would have made of a run: its rollouts and SPECs in, a reward and an advantage for each out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo.core.check.diff import Difference, Scale, compare
from grpo.core.record.browse import to_completion
from grpo.core.record.run_dir import RunDir
from grpo.core.scoring.recorded_run import own_outcomes, rollouts_of
from grpo.core.scoring.rows import numbered
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.host import Host


def compared(run: RunDir, config: Mapping[str, Any], host: Host, new: Sequence[str]) -> Difference:
    """Scores everything that a run recorded with other rewards, and compares with its own.

    Args:
        run: the run.
        config: as config.json has it; it says what advantages were divided by.
        host: finds the rewards.
        new: their SPECs.

    Raises:
        UsageError: a SPEC cannot be used, the run has no rollouts, or does not say which rewards it had.
    """
    rewards = host.rewards(new)
    found = list(rollouts_of(run.path))
    groups = [f"{step} {rollout.group}" for step, rollout in found]
    outcomes, weights = own_outcomes(run.path, [rollout for _, rollout in found])
    with Scorer(rewards) as scorer:
        scored = scorer.score(numbered(groups, [to_completion(rollout) for _, rollout in found]))
    scale: Scale = "none" if config.get("loss", {}).get("scale_rewards") == "none" else "group"
    chosen = {reward.name: scored[reward.name] for reward in rewards}
    return compare(groups, outcomes, chosen, weights, {reward.name: reward.weight for reward in rewards}, scale)


def difference_summary(new: Sequence[str], difference: Difference) -> dict[str, Any]:
    """Returns what the page says of the difference as a whole."""
    return {
        "rewards": list(new),
        "means": [difference.mean_old, difference.mean_new],
        "unscored": [difference.unscored_old, difference.unscored_new],
        "groups": difference.groups,
        "lost_signal": list(difference.lost_signal),
        "gained_signal": list(difference.gained_signal),
        "flips": len(difference.flips),
        "shift": difference.mean_shift,
    }
