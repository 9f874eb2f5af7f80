"""The gymnasium space of texts. In: nothing. Out: a space that holds every string.

Gymnasium's own `Text` needs a fixed alphabet and a greatest length; over all of Unicode it takes many seconds to
build. Questions and completions have neither limit.
"""

from __future__ import annotations

import string
from typing import Any

import gymnasium

_SAMPLED = string.ascii_letters + string.digits + string.punctuation + " \n"


class AnyText(gymnasium.Space[str]):
    """Every string, the empty one included.

    Args:
        sample_length: the greatest length in characters of what `sample` makes up; longer strings are members too.
        seed: seeds `sample`.

    Raises:
        ValueError: `sample_length` is negative.
    """

    def __init__(self, sample_length: int = 64, seed: int | None = None) -> None:
        if sample_length < 0:
            raise ValueError(f"sample_length {sample_length} must be 0 or more characters.")
        self.sample_length = sample_length
        super().__init__(shape=None, dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Makes up a text of printable ASCII characters and line ends.

        Raises:
            ValueError: a mask or a probability is given; neither means anything for free text.
        """
        if mask is not None or probability is not None:
            raise ValueError("AnyText.sample takes no mask and no probability; call sample() without them.")
        length = int(self.np_random.integers(self.sample_length + 1))
        return "".join(_SAMPLED[i] for i in self.np_random.integers(len(_SAMPLED), size=length))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def __repr__(self) -> str:
        return "AnyText()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)

    __hash__ = None  # type: ignore[assignment]
