"""The environment small_sums with its reward and its verifier.

Keep the imports light: every grpo command that lists plugins makes them. Gymnasium waits in `environment`.
"""

from __future__ import annotations

import random
from typing import Any

from grpo import Case, EnvSpec, RewardSpec, Verdict, VerifierSpec, env, hookimpl, reward, verifier

grpo_contract = 1
_CASES = (("42", True), ("41", False), ("", False))


@verifier(version=1, cases=[Case(text, row={"answer": "42"}, expect=right) for text, right in _CASES])
def small_sums_verifier(completion: str, answer: str) -> Verdict:
    """Judges whether the completion is the sum and nothing else.

    Args:
        completion: the text that is judged; blanks around it do not count.
        answer: the sum.
    """
    stated = completion.strip()
    return Verdict(_value(stated) == _value(answer), extracted=stated[:200] or None, reason=f"expected {answer}")


@reward(
    version=1,
    range=(0.0, 1.0),
    cases=[Case(text, row={"answer": "42"}, expect=1.0 if right else 0.0) for text, right in _CASES],
)
def small_sums_reward(completion: str, answer: str) -> float:
    """1 when the verifier accepts the completion, else 0.

    Args:
        completion: the text that is scored.
        answer: the sum.
    """
    return 1.0 if small_sums_verifier(completion, answer).ok else 0.0


def _value(text: object) -> float | None:
    """Reads a number written as people write it; None when it is none."""
    plain = str(text).strip().removeprefix("$").replace(",", "")
    try:
        return float(plain) if plain.isascii() and len(plain) < 40 else None
    except ValueError:
        return None


def rows(split: str, *, largest: int = 50, size: int = 200) -> list[dict[str, str]]:
    """Makes up the rows of a split; those of one split do not depend on those of another."""
    source = random.Random(f"small_sums {split}")
    pairs = [(source.randint(0, largest), source.randint(0, largest)) for _ in range(size)]
    return [{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in pairs]


@env(version=1, dataset=rows, rewards=["small_sums_reward"], verifier="small_sums_verifier")
def small_sums(*, largest: int = 50, size: int = 200) -> Any:
    """Asks for the sum of two numbers; the answer is the number alone.

    Args:
        largest: the largest number to add.
        size: the number of rows in each split.
    """
    from grpo_env_small_sums.environment import SumEnv

    return SumEnv(rows("train", largest=largest, size=size))


@hookimpl
def grpo_envs() -> list[EnvSpec]:
    """Offers the environment to grpo."""
    return [small_sums]


@hookimpl
def grpo_rewards() -> list[RewardSpec]:
    """Offers its reward to grpo."""
    return [small_sums_reward]


@hookimpl
def grpo_verifiers() -> list[VerifierSpec]:
    """Offers its verifier to grpo."""
    return [small_sums_verifier]
