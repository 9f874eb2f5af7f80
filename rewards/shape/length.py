"""Scores the length of a completion, and penalises lengths near or beyond a limit."""

from __future__ import annotations

from grpo.plugins.decorators import reward
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case, Completion
from grpo.rewards.shape.units import Unit, size


@reward(
    version=1,
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case("She has 6 boxes of 12 apples. <answer>72</answer>", {}, 1.0),
        Case("word " * 225, {}, 0.5),
        Case("word " * 400, {}, 0.0),
        Case("", {}, 0.0),
        Case("12345", {}, 0.5, {"unit": "characters", "minimum": 10}),
    ],
)
def length(
    completion: Completion | str, *, target: int = 150, limit: int = 300, minimum: int = 1, unit: Unit = "words"
) -> float | None:
    """1 from `minimum` to `target`, falling in a straight line to 0 at `limit`, and to 0 at length 0 below `minimum`.

    For a length n: n/minimum if n < minimum; 1 if n <= target; (limit - n) / (limit - target) if n < limit; else 0.

    Args:
        completion: the completion.
        target: the longest length that costs nothing.
        limit: the length from which the score is 0.
        minimum: the shortest length that costs nothing; 0 lets an empty completion score 1.
        unit: words (runs without blank space), characters, or sampled tokens; with tokens the reward abstains on
            completions that come without token ids.

    Raises:
        OptionError: not 0 <= minimum <= target < limit.
    """
    if not 0 <= minimum <= target < limit:
        raise OptionError(
            f"length: minimum={minimum}, target={target}, limit={limit} are out of order. "
            "Choose 0 <= minimum <= target < limit, for example target=150, limit=300."
        )
    count = size(completion, unit)
    if count is None:
        return None
    if count < minimum:
        return count / minimum
    if count <= target:
        return 1.0
    return max(0.0, (limit - count) / (limit - target))


def prepare(*, limit: int, margin: int, **_others: object) -> None:
    """Refuses options that cannot work. Raises OptionError: not 0 <= margin <= limit."""
    if not 0 <= margin <= limit:
        raise OptionError(
            f"overlong: limit={limit}, margin={margin} are out of order. Choose 0 <= margin <= limit, for example "
            "limit=1024, margin=256."
        )


@reward(
    version=1,
    range=(-1.0, 0.0),
    isolation="inline",
    prepare=prepare,
    cases=[
        Case("", {}, 0.0),
        Case("word " * 80, {}, 0.0, {"unit": "words", "limit": 100, "margin": 20}),
        Case("word " * 90, {}, -0.5, {"unit": "words", "limit": 100, "margin": 20}),
        Case("word " * 100, {}, -1.0, {"unit": "words", "limit": 100, "margin": 20}),
        Case("word " * 900, {}, -1.0, {"unit": "words", "limit": 100, "margin": 20}),
    ],
)
def overlong(
    completion: Completion | str, *, limit: int = 1024, margin: int = 256, unit: Unit = "tokens"
) -> float | None:
    """0 up to `limit` - `margin`, falling in a straight line to -1 at `limit`, and -1 beyond.

    For a length n: 0 if n <= limit - margin; (limit - margin - n) / margin if n <= limit; else -1. This is equation 13
    of DAPO (arXiv:2503.14476), `get_soft_overlong_punishment` of TRL and open-r1. Set `limit` to the length at which
    completions are cut, so that every one that was cut pays in full.

    Args:
        completion: the completion.
        limit: the length from which the penalty is full.
        margin: how far before `limit` it begins; 0 for a step behind `limit`, which itself then costs nothing.
        unit: sampled tokens (the reward abstains on completions that come without token ids), words or characters.
    """
    length = size(completion, unit)
    if length is None:
        return None
    if length <= limit - margin:
        return 0.0
    return (limit - margin - length) / margin if length <= limit else -1.0
