"""Misspells one hook; the other one must go on working."""

from grpo import RewardSpec, VerifierSpec, hookimpl, reward


@reward(version=1, range=(0.0, 1.0), isolation="inline")
def survivor(completion: str) -> float:
    """The reward of a plugin with a misspelt hook."""
    return 1.0


@hookimpl
def grpo_rewards() -> list[RewardSpec]:
    return [survivor]


@hookimpl
def grpo_verifier() -> list[VerifierSpec]:
    return []
