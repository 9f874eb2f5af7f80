"""Refuses partial rollouts (`rollout.partial`) where they would be wrong or do nothing."""

from __future__ import annotations

from grpo.core.config.schema import RunConfig
from grpo.plugins.errors import UsageError


def refuse_impossible_partial(config: RunConfig, processes: int) -> None:
    """Refuses to carry rollouts from step to step where that would be wrong."""
    if not config.rollout.partial:
        return
    wrong = {
        f"--ahead {config.rollout.ahead}": (
            config.rollout.ahead > 0,
            "a batch ahead is sampled by one version of the policy, a partial rollout by several",
        ),
        "rollout.refill": (config.rollout.refill > 0, "a batch is filled up within its step"),
        "rollout.dynamic": (config.rollout.dynamic > 0, "a batch is filled up within its step"),
        f"loss.num_iterations={config.loss.num_iterations}": (
            config.loss.num_iterations > 1,
            "rollouts would be several steps older than they have to be",
        ),
        "train.head='trl'": (config.train.head == "trl", "only our head corrects for tokens of earlier steps"),
        "loss.rollout_correction='none'": (
            config.loss.rollout_correction == "none",
            "tokens of earlier steps need to be corrected",
        ),
        f"{processes} processes": (processes > 1, "each would have other groups whole at each step; use one"),
    }
    for name, (present, reason) in wrong.items():
        if present:
            raise UsageError(
                f"--partial {config.rollout.partial} with {name}: {reason}. Leave the one or the other out."
            )


def refuse_idle_partial(tokens: int, longest: int) -> None:
    """Refuses parts that hold every rollout.

    Args:
        tokens: of a part; 0: rollouts are sampled whole.
        longest: the most tokens that the policy samples in one rollout.

    Raises:
        UsageError: no rollout would be continued.
    """
    if tokens >= longest and tokens:
        raise UsageError(
            f"--partial {tokens}: no rollout samples more than {longest} tokens, so each would be whole in its first "
            "step. Lower it, or leave it out."
        )
