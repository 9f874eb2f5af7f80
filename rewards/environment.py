"""Provides the reward and the verifier `environment`: an environment's own scores and judgement of a rollout."""

from __future__ import annotations

import math
from typing import Literal

from grpo.plugins.decorators import reward, verifier
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Completion, Scored, Verdict


def _sound(*, combine: str, discount: float, score: str | None) -> None:
    if not 0.0 <= discount <= 1.0:
        raise OptionError(f"discount={discount:g} must be from 0 to 1.")
    if discount != 1.0 and combine != "sum":
        raise OptionError(f"discount={discount:g} means nothing with combine={combine}: leave one of them out.")
    if score is not None and (combine, discount) != ("sum", 1.0):
        raise OptionError(f"score={score} is one number for the whole rollout: leave combine and discount out.")


@reward(version=1, isolation="inline", prepare=_sound)
def environment(
    completion: Completion,
    *,
    combine: Literal["sum", "terminal"] = "sum",
    discount: float = 1.0,
    score: str | None = None,
) -> float | Scored | None:
    """The environment's own reward: r_1 + discount * r_2 + discount^2 * r_3 + ... over the turns of a rollout.

    Args:
        completion: a rollout whose environment was stepped.
        combine: sum (of the turns, discounted) or terminal (the reward of the last turn alone).
        discount: what a turn later is worth; below 1, reaching a goal sooner pays.
        score: instead, the number of that name in `info["scores"]` of the last step.

    Raises:
        LookupError: the environment was not stepped, or reports no such score.
    """
    if completion.info.get("abstains") is True:  # the environment says that it has no reward for this rollout
        return None
    rewards = completion.info.get("rewards")
    if not rewards:
        raise LookupError("the environment of this rollout reported no rewards: name a reward that reads the text")
    if score is not None:
        scores = completion.info.get("scores") or {}
        if score not in scores:
            raise LookupError(f"the environment reports no score '{score}'; it has: {', '.join(scores) or 'none'}")
        return float(scores[score])
    if combine == "terminal":
        return float(rewards[-1])
    each = [discount**turn * value for turn, value in enumerate(rewards)]
    return Scored(math.fsum(each), turns=each if len(each) == completion.turns else None)


@verifier(name="environment", version=1, isolation="inline")
def success(completion: Completion) -> Verdict:
    """Whether the environment says that its goal was reached: `info["success"]` of the last step."""
    flag = completion.info.get("success")
    ended = completion.info.get("terminated") or completion.info.get("truncated")
    if not isinstance(flag, bool) and completion.finish_reason == "length" and not ended:
        return Verdict(False, None, "a budget ended the rollout before its goal was reached")
    if not isinstance(flag, bool):
        return Verdict(None, None, "the environment does not say whether its goal was reached")
    return Verdict(flag, completion.text or None, "its goal was reached" if flag else "its goal was not reached")
