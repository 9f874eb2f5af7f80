"""Implements the two-part arithmetic reward: one part for a number, one for the correct number."""

from __future__ import annotations

from grpo.plugins.decorators import reward
from grpo.plugins.types import Case
from grpo.rewards.numbers.answers import final_answer, gold_numbers, is_right


@reward(
    version=6,
    range=(-4.0, 4.0),
    isolation="inline",
    cases=[
        Case("<answer>72</answer>", {"answer": "6*12 = 72\n#### 72"}, 4.0),
        Case("That makes 72 in all.", {"answer": "72"}, 4.0),
        Case("<answer>71</answer>", {"answer": "72"}, -2.0),
        Case("<answer>71 or 72</answer>", {"answer": "72"}, -2.0),
        Case("I cannot tell.", {"answer": "72"}, -4.0),
        Case("<answer>72</answer>", {"answer": "unknown"}, None),
    ],
)
def arithmetic(completion: str, answer: str | list[str]) -> float | None:
    """found + right: +1 when the final answer holds a number, else -1; +3 when that number is right, else -3.

    So 4 (right), -2 (wrong) or -4 (no number). Answers and golds are read as the verifier `gsm8k` reads them. Abstains
    when the gold is not one number.
    """
    golds = gold_numbers(answer)
    if not golds:
        return None
    stated = final_answer(completion)
    return (1.0 if stated is not None and stated.numbers else -1.0) + (3.0 if is_right(stated, *golds) else -3.0)
