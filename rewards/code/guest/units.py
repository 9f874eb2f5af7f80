"""Defines the functions that prepared tests call unit by unit, and compares results that came from JSON.

The prepared source (`grpo.rewards.code.instrument`) calls `__begin__` and `__ended__` around each unit, `__ask__` for
calls of functions, and `__true__` for what an assertion found. This module runs inside sandboxes and needs the standard
library alone.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable
from typing import Any

from grpo.rewards.code.guest.plain import NotPlain, decode, encode

CHANGING = "its answers depend on what it was asked before"
_MOST_CALLS, _LONGEST_CALL = 1000, 2000
_INFINITE = float("inf")


class Stop(BaseException):
    """No further unit is to run."""


def is_skip(error: BaseException | None) -> bool:
    """Returns whether an exception is a skip of pytest or unittest."""
    places = (("_pytest.outcomes", "Skipped"), ("_pytest.outcomes", "XFailed"), ("unittest.case", "SkipTest"))
    kinds = [getattr(sys.modules.get(module), name, None) for module, name in places]
    return isinstance(error, tuple(kind for kind in kinds if isinstance(kind, type)))


def recording() -> tuple[list[Any], Callable[[list[Any]], None], Callable[[Any], None]]:
    """Returns the recorded calls, what records one, and what is told each answer, all in the form of plain data.

    A call whose arguments hold an earlier answer, such as the number of an account, cannot be made first.
    """
    calls: list[Any] = []
    known: set[str] = set()
    answers: set[str] = set()

    def record(call: list[Any]) -> None:
        _, args, named = call
        texts = [*map(repr, (*args, *named.values()))]
        short = len(calls) < _MOST_CALLS and sum(map(len, texts)) < _LONGEST_CALL
        if short and repr(call) not in known and not answers.intersection(texts):
            calls.append(call)
            known.add(repr(call))

    def answered(answer: Any) -> None:
        answers.add(repr(answer))

    return calls, record, answered


def remembering(remembers: bool) -> tuple[Callable[..., Any], list[Any]]:
    """Returns `__ask__` and the recorded calls with plain data; if it `remembers`, equal calls get the first answer."""
    answers: dict[str, Any] = {}
    awaited: set[str] = set()
    calls, record, answered = recording()

    def ask(function: Any, *args: Any, **named: Any) -> Any:
        try:
            name = str(getattr(function, "__name__", id(function)))
            call = [name, [*map(encode, args)], {key: encode(value) for key, value in named.items()}]
        except (NotPlain, RecursionError, TypeError):
            return function(*args, **named)
        question = repr(call)
        if question in answers:
            return again(decode(answers[question])) if question in awaited else decode(answers[question])
        record(call)
        result = function(*args, **named)
        return later(question, result) if isinstance(result, types.CoroutineType) else first(question, result)

    def first(question: str, result: Any) -> Any:
        with contextlib.suppress(NotPlain, RecursionError, TypeError):
            answer = encode(result)
            answered(answer)
            if remembers:
                answers[question] = answer
        return result

    async def later(question: str, coroutine: Any) -> Any:
        awaited.add(question)
        return first(question, await coroutine)

    async def again(answer: Any) -> Any:
        return answer

    return ask, calls


def asserting(
    sure: list[list[int]], reaching: list[int]
) -> tuple[Callable[..., Any], Callable[[int], None], Callable[[], None], Callable[[int], str], list[str]]:
    """Returns `__true__`, `__enter__`, what starts a unit, what says why one has not passed, and failed assertions.

    `sure`: for each unit, its assertions that are reached whenever it passes. `reaching`: the units that pass only if
    some assertion was reached.
    """
    reached: dict[int, int] = {}
    entered: dict[int, int] = {}
    failed: list[str] = []

    def true(value: Any, place: int = -1, caught: bool = False, text: str = "") -> bool:
        reached[place] = reached.get(place, 0) + 1
        result = bool(value)
        if not result and not caught:
            failed.append(text)
        return result

    def enter(place: int) -> None:
        entered[place] = entered.get(place, 0) + 1

    def anew() -> None:
        for kept in (reached, entered, failed):
            kept.clear()

    def fault(unit: int) -> str:
        if failed:
            return "an assertion failed, and the failure did not reach the test"
        if unit in reaching and not reached:
            return "no assertion of the test was reached"
        missing = [place for place in sure[unit] if place not in reached]
        if missing or any(reached.get(place, 0) < count for place, count in entered.items()):
            return "an assertion was not reached, and no exception reached the test"
        return ""

    return true, enter, anew, fault, failed


def same(result: Any, expected: Any, tolerance: float) -> bool:
    """Returns whether a result is the expected one, which came from JSON.

    Tuples count as lists, and whole numbers as keys of a dict as texts. Of an expected list of one item, that item will
    do as well: data sets wrap results so.
    """
    if _near(result, expected, tolerance):
        return True
    return isinstance(expected, list) and len(expected) == 1 and _near(result, expected[0], tolerance)


def _near(result: Any, expected: Any, tolerance: float) -> bool:
    """Tuples are lists; floats are within a tolerance of what is expected or 1."""
    if isinstance(result, list | tuple) and type(expected) is list:
        pairs = zip(result, expected, strict=False)
        return len(result) == len(expected) and all(_near(item, wanted, tolerance) for item, wanted in pairs)
    if type(result) is dict and type(expected) is dict:
        if all(type(key) is int for key in result) and all(type(key) is str for key in expected):
            result = {str(key): value for key, value in result.items()}  # JSON has no numbers as keys
        alike = result.keys() == expected.keys()
        return alike and all(_near(result[key], expected[key], tolerance) for key in expected)
    if tolerance and float in (type(result), type(expected)) and {type(result), type(expected)} <= {int, float}:
        most = tolerance * max(1.0, abs(expected))
        return bool(result == expected or (most < _INFINITE and abs(result - expected) <= most))
    return bool(result == expected)
