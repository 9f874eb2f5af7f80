"""Offers a reward under the name of a built-in one."""

from grpo import RewardSpec, hookimpl, reward


@reward(version=7, range=(0.0, 1.0), isolation="inline")
def proximity(completion: str) -> float:
    """A stranger's reward that has the name of a built-in one."""
    return 0.25


@hookimpl
def grpo_rewards() -> list[RewardSpec]:
    return [proximity]
