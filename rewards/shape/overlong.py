"""Penalises completions softly that come near the length limit."""

from __future__ import annotations

from grpo.plugins.decorators import reward
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case, Completion
from grpo.rewards.shape.units import Unit, size


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

    Raises:
        OptionError: not 0 <= margin <= limit.
    """
    prepare(limit=limit, margin=margin)
    length = size(completion, unit)
    if length is None:
        return None
    if length <= limit - margin:
        return 0.0
    return (limit - margin - length) / margin if length <= limit else -1.0
