"""A bonus for the shortest right answer: a reward that looks at all completions of a prompt together.

grpo run --env gsm8k --reward ./examples/shortest_right.py:shortest_right
grpo plugins check ./examples/shortest_right.py:shortest_right
"""

from __future__ import annotations

import re
from decimal import Decimal

from grpo import Case, reward

_STATED = re.compile(r"(?:####|<answer>)\s*\$?(-?\d[\d,]*(?:\.\d+)?)\s*(?:</answer>)?\s*\Z", re.ASCII)
_GOLD = re.compile(r"-?\d[\d,]*(?:\.\d+)?", re.ASCII)


@reward(
    version=1,
    scope="group",
    range=(0.0, 2.0),
    isolation="inline",
    cases=[
        Case(
            ["6 * 12 is 72, so\n#### 72", "<answer>$72.00</answer>", "#### 71", "I do not know."],
            row={"answer": "72"},
            expect=[1.0, 1.5, 0.0, 0.0],
        ),
        Case(["#### 72", "#### 72"], row={"answer": "6 * 12 = 72\n#### 72"}, expect=[1.5, 1.5]),
        Case(["#### 72", "#### 7"], row={"answer": "unknown"}, expect=[None, None]),
    ],
)
def shortest_right(completions: list[str], answer: str, *, bonus: float = 0.5) -> list[float | None]:
    """1 for a right answer after #### or in <answer>, and the bonus on top for the shortest right one of its group.

    Right answers of the same length share the shortest place. Abstains where the gold is no number.
    """
    gold = _GOLD.fullmatch(str(answer).rpartition("####")[2].strip())
    if gold is None:
        return [None] * len(completions)
    stated = [_STATED.search(text[-200:]) for text in completions]
    right = [found is not None and _value(found[1]) == _value(gold[0]) for found in stated]
    shortest = min((_length(text) for text, ok in zip(completions, right, strict=True) if ok), default=0)
    return [
        0.0 if not ok else 1.0 + bonus if _length(text) == shortest else 1.0
        for text, ok in zip(completions, right, strict=True)
    ]


def _length(text: str) -> int:
    return len(text.split())


def _value(number: str) -> Decimal:
    return Decimal(number.replace(",", ""))
