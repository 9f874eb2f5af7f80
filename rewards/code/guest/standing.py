"""What number does an object stand for? Its answers in, the same answers out as long as they are those of one number.

Theory of operation. `Diff(1) < 5` and `Diff(1) - 5 == -4` ask an object for what only it can say, where nothing shows
that the tests mean a class. So it is asked the same with other numbers too, in no order. What answers as one number
would gains nothing that this number would not; what does not is no number, and the test has failed.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import operator
import random
import secrets
from collections.abc import Callable
from typing import Any

_COUNT = 8
_NEAR = 1e-9
_SOLVED: dict[str, Callable[[Any, Any], Any]] = {
    "__add__": lambda value, said: said - value,
    "__radd__": lambda value, said: said - value,
    "__sub__": lambda value, said: said + value,
    "__rsub__": lambda value, said: value - said,
    "__mul__": lambda value, said: said / value,
    "__rmul__": lambda value, said: said / value,
}
_BELOW = {"__lt__": True, "__le__": True, "__gt__": False, "__ge__": False}


class Standing:
    """The numbers that an object may stand for, after what it has said."""

    def __init__(self) -> None:
        self._low, self._high = float("-inf"), float("inf")
        self._open_low = self._open_high = False

    def ordered(self, name: str, other: Any, ask: Callable[[Any], bool]) -> bool:
        """Returns what an object says of its order beside a number.

        Raises:
            TypeError: that is no number, or its answers are those of none.
        """
        said = {value: ask(value) for value in _shuffled(name, other)}
        for value, yes in said.items():
            below = _BELOW[name] is yes
            strict = (name in ("__lt__", "__gt__")) is yes
            self._narrow(value, below=below, strict=strict)
        return said[other]

    def calculated(self, name: str, other: Any, ask: Callable[[Any], Any]) -> Any:
        """Returns what an object makes of a number.

        Raises:
            TypeError: that is no number, the operation tells nothing, or its answers are those of no number.
        """
        if name not in _SOLVED or (other == 0 and "mul" in name):
            raise TypeError(f"{name} of an object of the solution and plain data")
        said = {value: ask(value) for value in _shuffled(name, other)}
        if any(type(each) not in (int, float) for each in said.values()):
            raise TypeError(f"{name} of an object of the solution and a number gave no number")
        stood = [_SOLVED[name](value, each) for value, each in said.items()]
        width = _NEAR * max(1.0, *map(abs, stood), *map(abs, said))
        if max(stood) - min(stood) > 2 * width:
            raise TypeError(f"{name} of an object of the solution and a number is that of no number")
        self._narrow(min(stood) - width, below=False, strict=False)
        self._narrow(max(stood) + width, below=True, strict=False)
        return said[other]

    def claimed(self, name: str, other: Any, said: bool) -> bool:
        """Returns what an object of a class says of its order beside a number; it may be beside no number at all.

        Raises:
            TypeError: it is above a number and below a smaller one.
        """
        if said and type(other) in (int, float):
            self._narrow(other, below=_BELOW[name], strict=name in ("__lt__", "__gt__"))
        return said

    def _narrow(self, value: Any, *, below: bool, strict: bool) -> None:
        """Notes that the number is below a value, or not."""
        if below and (value < self._high or (value == self._high and strict)):
            self._high, self._open_high = value, strict
        elif not below and (value > self._low or (value == self._low and strict)):
            self._low, self._open_low = value, strict
        apart = operator.lt if not (self._open_low or self._open_high) else operator.le
        if apart(self._high, self._low):
            raise TypeError("an object of the solution answers as no number does")


def _shuffled(name: str, other: Any) -> list[Any]:
    """Returns a number among others, in no order.

    Raises:
        TypeError: it is none.
    """
    if type(other) not in (int, float):
        raise TypeError(f"{name} of an object of the solution and plain data")
    draw = random.Random(secrets.token_bytes(16))
    spread = 2 * abs(other) + 10
    values = [other, *(other + draw.uniform(-spread, spread) or 1 for _ in range(_COUNT))]
    draw.shuffle(values)
    return values
