"""Scores correct and wrong answers by length along a cosine.

Short right answers earn more, and short wrong ones lose more, so that a policy thinks longer where it is unsure.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from grpo.plugins.decorators import reward
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case, Completion
from grpo.rewards.math.accuracy import accuracy
from grpo.rewards.math.process import SECONDS, Undecided, Unreadable, compare
from grpo.rewards.math.verifier import TIMEOUT
from grpo.rewards.shape.units import Unit, size

Variant = Literal["verifier", "trl.get_cosine_scaled_reward", "open_r1.get_cosine_scaled_reward"]

_SCORES = ("right_short", "right_long", "wrong_short", "wrong_long")
_ROW = {"answer": "72"}
_OPEN_R1 = {"variant": "open_r1.get_cosine_scaled_reward", "unit": "characters"}
_OPEN_R1_UNREADABLE = 1.0


def prepare(*, limit: int, over: float | None, **scores: Any) -> None:
    """Refuses options that cannot work. Raises OptionError: limit is below 1, or a score is not from -1 to 1."""
    given = {name: scores[name] for name in _SCORES} | ({} if over is None else {"over": over})
    if limit < 1 or not all(-1.0 <= score <= 1.0 for score in given.values()):
        raise OptionError(
            f"cosine: limit={limit} and {', '.join(f'{name}={score:g}' for name, score in given.items())} cannot be "
            "used. Choose a limit of 1 or more and scores from -1 to 1; a weight makes the reward count more."
        )


@reward(
    version=4,
    as_published=["variant"],
    range=(-1.0, 1.0),
    isolation="process",
    timeout=TIMEOUT,
    prepare=prepare,
    cases=[
        Case("<think>\n6*12\n</think>\n<answer>72</answer>", _ROW, 0.75 + 0.25 * math.cos(math.pi * 4 / 500)),
        Case("<answer>72</answer>" + " and on" * 249, _ROW, 0.75, {"limit": 998}),
        Case("on " * 500 + "<answer>72</answer>", _ROW, 0.5),
        Case("on " * 2000 + "<answer>71</answer>", _ROW, -0.5),
        Case("on " * 2000 + "<answer>71</answer>", _ROW, -1.0, {"over": -1.0}),
        Case("<answer>71</answer>", _ROW, -0.75 - 0.25 * math.cos(math.pi / 500)),
        Case("", _ROW, -1.0),
        Case("<answer>72</answer>", {"answer": ""}, None),
        Case("\\boxed{72}", {"answer": "$72$"}, 0.75 + 0.25 * math.cos(math.pi / 10), _OPEN_R1 | {"limit": 100}),
        Case("\\boxed{72}", {"answer": "seventy-two"}, 1.0, _OPEN_R1),
        Case("\\boxed{71}", _ROW, -0.75, {"variant": "trl.get_cosine_scaled_reward", "limit": 2}),
    ],
)
def cosine(
    completion: Completion | str,
    answer: str,
    *,
    limit: int = 500,
    unit: Unit = "words",
    right_short: float = 1.0,
    right_long: float = 0.5,
    wrong_short: float = -1.0,
    wrong_long: float = -0.5,
    over: float | None = None,
    variant: Variant = "verifier",
) -> float | None:
    """Half a cosine wave over the length, from `right_short` to `right_long` or from `wrong_short` to `wrong_long`.

    long + (short - long) (1 + cos(pi n / limit)) / 2 for a length n up to `limit`, and long beyond. Right and wrong is
    what the verifier `math` says; undecided is an abstention. Source: Yeo et al., Demystifying Long Chain-of-Thought
    Reasoning (arXiv:2502.03373), whose r_0^c, r_L^c, r_0^w, r_L^w and r_e are the four numbers and `over`.

    Args:
        completion: the completion.
        answer: the gold, as for the verifier `math`.
        limit: the length at which the score is `right_long` or `wrong_long`.
        unit: words, characters or sampled tokens; with tokens the reward abstains on completions without token ids.
        right_short, right_long: for right answers of length 0 and of length `limit`.
        wrong_short, wrong_long: the same for wrong ones.
        over: the score of every completion longer than `limit`, right or wrong; None: as at `limit`.
        variant: "verifier" as above, or a published function, scored as published but for the unit, which is to be
            set: trl.get_cosine_scaled_reward (tokens; TRL's accuracy) and open_r1.get_cosine_scaled_reward
            (characters; LaTeX alone; 1 when the gold cannot be read; beyond `limit` the wave goes on).
    """
    length = size(completion, unit)
    if length is None:
        return None
    try:
        right = _right(completion if isinstance(completion, str) else completion.text, answer, variant)
    except Undecided:
        return None
    if variant == "open_r1.get_cosine_scaled_reward":
        if right is None:
            return _OPEN_R1_UNREADABLE
    elif right is None:
        return None
    else:
        if over is not None and length > limit:
            return over
        length = min(length, limit)
    short, long = (right_short, right_long) if right else (wrong_short, wrong_long)
    return long + 0.5 * (short - long) * (1.0 + math.cos(length / limit * math.pi))


def _right(text: str, answer: str, variant: Variant) -> bool | None:
    """None when the gold cannot be read or nothing can be said. Raises Undecided: no end within its time."""
    if variant == "verifier":
        score = accuracy(text, answer)
        return None if score is None else score == 1.0
    operation = "trl" if variant == "trl.get_cosine_scaled_reward" else "open_r1_latex"
    try:
        return compare(operation, str(answer), text, seconds=SECONDS)
    except Unreadable:
        return False
