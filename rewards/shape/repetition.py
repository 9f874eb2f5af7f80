"""Penalises a completion for how much it repeats itself."""

from __future__ import annotations

from grpo.plugins.decorators import reward
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case, Completion
from grpo.rewards.shape.units import Unit, pieces


def prepare(*, size: int, max_penalty: float, **_others: object) -> None:
    """Refuses options that cannot work. Raises OptionError: size is below 1, or max_penalty is not from -1 to 0."""
    if size < 1 or not -1.0 <= max_penalty <= 0.0:
        raise OptionError(
            f"repetition: size={size}, max_penalty={max_penalty} cannot be used. Choose a size of 1 or more and a "
            "max_penalty from -1 to 0; give the reward a weight to make it count more."
        )


@reward(
    version=1,
    range=(-1.0, 0.0),
    isolation="inline",
    prepare=prepare,
    cases=[
        Case("Six boxes of twelve apples are seventy-two apples.", {}, 0.0),
        Case("", {}, 0.0),
        Case("again and again and again", {}, -1 / 3),
        Case("this this this this this", {}, -0.75, {"size": 2}),
        Case("no no " * 500, {}, -(1 - 1 / 999), {"size": 2}),
        Case("x" * 9, {}, -0.5, {"size": 1, "unit": "characters", "max_penalty": -0.5625}),
    ],
)
def repetition(
    completion: Completion | str, *, size: int = 3, max_penalty: float = -1.0, unit: Unit = "words"
) -> float | None:
    """(1 - different runs / runs) x `max_penalty`, where a run is `size` neighbouring words.

    0 when no run occurs twice, and for fewer than `size` words; it comes near `max_penalty` when one run makes up the
    whole text. With unit=tokens it is TRL's repetition penalty, with unit=words open-r1's (both after appendix C.2 of
    arXiv:2502.03373).

    Args:
        completion: the completion.
        size: length of a run.
        max_penalty: the score that nothing but repetition comes near; -1 to 0.
        unit: words (case does not count), characters, or sampled tokens; with tokens the reward abstains on
            completions that come without token ids.
    """
    units = pieces(completion, unit)
    if units is None:
        return None
    runs = len(units) - size + 1
    if runs < 1:
        return 0.0
    different = len({tuple(units[start : start + size]) for start in range(runs)})
    return (1 - different / runs) * max_penalty if different < runs else 0.0
