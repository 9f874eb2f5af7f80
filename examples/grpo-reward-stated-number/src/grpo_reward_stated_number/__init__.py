"""Scores whether a completion states the gold number.

An example to begin with: replace the function, its cases, and the tests in tests/ with your own.

Keep the imports light: every grpo command that lists plugins makes them. A reward that compares the completions of a
prompt with each other declares scope="group", and takes and returns lists.
"""

from __future__ import annotations

import re

from grpo import Case, RewardSpec, hookimpl, reward

grpo_contract = 1
_NUMBER = re.compile(r"-?[0-9][0-9,]*(?:[.][0-9]+)?")
_MARK = re.compile("<answer>|<SOLUTION>|####")
_WORKING = re.compile(r"[0-9][0-9\s.,$()+*/-]*(?:=|\bis\b)")  # "6 * 12 =" states no answer
_READ = 400


@reward(
    version=1,
    range=(0.0, 1.0),
    cases=[
        Case("6 * 12 = <<6*12=72>>72\n#### 72", row={"answer": "6 * 12 = <<6*12=72>>72\n#### 72"}, expect=1.0),
        Case("<reasoning>\n6 * 12\n</reasoning>\n<answer>\n72\n</answer>\n", row={"answer": "72"}, expect=1.0),
        Case("6 * 12 = 72, so the answer is 72.", row={"answer": "72"}, expect=1.0),
        Case("The answer is $1,200.00.", row={"answer": "1200"}, expect=1.0),
        Case("The answer is 73.", row={"answer": "72"}, expect=0.0),
        Case("The answer is 72 or 71.", row={"answer": "72"}, expect=0.0),
        Case("I do not know.", row={"answer": "72"}, expect=0.0),
        Case("The answer is 72.", row={"answer": "unknown"}, expect=None),
    ],
)
def stated_number(completion: str, answer: str, *, tolerance: float = 0.0) -> float | None:
    """1 when the answer of a completion states the gold number and no other, else 0.

    The answer is what follows a mark ("<answer>", "<SOLUTION>", "####"), or else the last line. Abstains when the gold
    is no number.

    Args:
        completion: the text that is scored.
        answer: the gold: a number, or a worked solution that ends in "#### 72".
        tolerance: how far the number may be off.
    """
    gold = _NUMBER.fullmatch(str(answer).rpartition("####")[2].strip())
    if gold is None:
        return None
    text = completion.strip()[-_READ:]
    stated = _MARK.split(text)[1:] or text.splitlines()[-1:]
    numbers = {_value(number) for number in _NUMBER.findall(_WORKING.sub("", " ".join(stated)))}
    return 1.0 if len(numbers) == 1 and abs(numbers.pop() - _value(gold[0])) <= tolerance else 0.0


def _value(text: str) -> float:
    return float(text.replace(",", ""))


@hookimpl
def grpo_rewards() -> list[RewardSpec]:
    """Offers the reward to grpo."""
    return [stated_number]
