"""What other rewards would have made of a run: its rollouts and SPECs in, a reward and an advantage for each out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from grpo.core.check.diff import Advantage, Difference, compare
from grpo.core.record.browse import to_completion
from grpo.core.record.run_dir import RunDir
from grpo.core.scoring.recorded_run import own_outcomes, rollouts_of
from grpo.core.scoring.rows import numbered
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.training import GroupScores


def compared(run: RunDir, config: Mapping[str, Any], host: Host, new: Sequence[str]) -> Difference:
    """Scores everything that a run recorded with other rewards, and compares with its own."""
    rewards, advantage = host.rewards(new), _advantage_of(run, config, host)
    found = list(rollouts_of(run.path))
    groups = [f"{step} {rollout.group}" for step, rollout in found]
    outcomes, weights = own_outcomes(run.path, [rollout for _, rollout in found])
    with Scorer(rewards) as scorer:
        scored = scorer.score(numbered(groups, [to_completion(rollout) for _, rollout in found]))
    chosen = {reward.name: scored[reward.name] for reward in rewards}
    return compare(groups, outcomes, chosen, weights, {reward.name: reward.weight for reward in rewards}, advantage)


def _advantage_of(run: RunDir, config: Mapping[str, Any], host: Host) -> Advantage:
    """Returns the advantage that a run was trained with; of single turns, what it makes of the score of a whole one."""
    loss = config.get("loss")
    if not isinstance(loss, Mapping) or "advantage" not in loss:
        raise UsageError(f"{run.config} was damaged: it does not say which advantage the run had.")
    bound = host.advantage(loss["advantage"])
    if not bound.spec.turns:
        return bound

    def of_the_whole(scores: GroupScores) -> Any:
        found = bound(replace(scores, turns=scores.totals[:, :, None]))
        return found[:, :, 0] if found.ndim == 3 else found

    return of_the_whole


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
