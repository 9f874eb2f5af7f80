"""What tests hand over that the solution may ask: functions and iterators in, numbers that stand for them out.

A coroutine of the tests is run to its end when the solution awaits it. One that waits for something else is left
undecided: others of the tests may have to run meanwhile, and here they do not.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import CoroutineType
from typing import Any

from grpo.rewards.code.guest.callbacks import facts_of
from grpo.rewards.code.guest.handles import Unjudgeable
from grpo.rewards.code.guest.values import Wire

_MOST_TAKEN = 1000


class Functions:
    """The functions and iterators of the tests that a solution has been given.

    Args:
        plain: the wire form of a default.
    """

    def __init__(self, plain: Callable[[Any], Wire]) -> None:
        self._plain = plain
        self._numbers: dict[int, int] = {}
        self._known: list[Any] = []
        self._iterators: dict[int, tuple[Any, Any]] = {}

    def __getitem__(self, number: int) -> Any:
        return self._known[number]

    def iterator(self, number: int) -> Any:
        """Returns the iterator of that number."""
        return self._iterators[number][0]

    def function(self, value: Any) -> Wire:
        """Returns the wire form of a function of the tests: its number, its name, and what is known of a `def`."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._known)
            self._known.append(value)
        name = getattr(value, "__name__", "")
        found = facts_of(value)
        facts = None if found is None else [*found[0], [self._plain(each) for each in found[1]]]
        return ["k", self._numbers[id(value)], name if type(name) is str else "", facts]

    def number_of_iterator(self, value: Any) -> int:
        """Returns the number of a function that takes so many more items of an iterator of the tests."""
        for number, (known, _) in self._iterators.items():
            if known is value:
                return number

        def take(count: Any) -> Any:
            taken = list(itertools.islice(value, min(count, _MOST_TAKEN)))
            return taken, len(taken) < count

        self._known.append(take)
        self._iterators[len(self._known) - 1] = (value, take)
        return len(self._known) - 1


def awaited(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    """Returns what a coroutine of the tests gives.

    Raises:
        Unjudgeable: it waits for something.
        BaseException: what it raises.
    """
    while True:
        try:
            waiting = coroutine.send(None)
        except StopIteration as end:
            return end.value
        except RuntimeError as error:
            if str(error) != "no running event loop":
                raise
            waiting = error
        if waiting is not None:
            raise Unjudgeable("the tests give the solution a coroutine that waits")
