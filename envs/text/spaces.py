"""Defines the gymnasium space of every string; gymnasium's own `Text` needs a fixed alphabet and a maximum length.

In the memory that the processes of an `AsyncVectorEnv` share, a text has room for `SHARED` bytes.
"""

from __future__ import annotations

import multiprocessing
import string
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

SHARED = 2**16  # bytes of UTF-8 for one environment
_LENGTH = 4  # bytes before a text that hold its length
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
        """Makes up a text of printable ASCII and line ends. Raises ValueError for a mask or a probability."""
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


class SharedTexts(Sequence[str]):
    """The texts in shared memory, as they are now; a copy is a tuple that stays as it is."""

    def __init__(self, memory: Any, count: int) -> None:
        self._memory = memory.get_obj()
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(self._count)))
        start = range(self._count)[index] * (_LENGTH + SHARED)
        length = int.from_bytes(self._memory[start : start + _LENGTH], "little")
        text: bytes = self._memory[start + _LENGTH : start + _LENGTH + length]
        return text.decode("utf-8", "surrogatepass")

    def __deepcopy__(self, _: Any) -> tuple[str, ...]:
        return tuple(self)


@create_shared_memory.register(AnyText)
def _create(space: AnyText, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.Array("c", n * (_LENGTH + SHARED))


@read_from_shared_memory.register(AnyText)
def _read(space: AnyText, shared_memory: Any, n: int = 1) -> SharedTexts:
    return SharedTexts(shared_memory, n)


@write_to_shared_memory.register(AnyText)
def _write(space: AnyText, index: int, value: str, shared_memory: Any) -> None:
    text = value.encode("utf-8", "surrogatepass")
    if len(text) > SHARED:
        raise ValueError(
            f"a text of {len(text)} bytes does not fit the {SHARED} that AsyncVectorEnv shares for each environment. "
            "Make it with shared_memory=False."
        )
    start = index * (_LENGTH + SHARED)
    whole = len(text).to_bytes(_LENGTH, "little") + text
    shared_memory.get_obj()[start : start + len(whole)] = whole
