"""Functions of the tests as the solution sees them: a number and what is known of a function in, a function out.

A `def` or `lambda` of the tests is a function here too, with its parameters, defaults, name and text, as decorators and
`inspect.signature` ask for them. Anything else that can be called is a `Callback`. Both ask the tests when called.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

Ask = Callable[[int, tuple[Any, ...], dict[str, Any]], Any]
_REST, _NAMED, _ASYNC = 4, 8, 128  # flags of code with *given, with **named, and of an `async def`


def facts_of(function: Any) -> tuple[list[Any], list[Any]] | None:
    """Returns what a solution may know of a function of the tests, and its defaults; None for what is no `def`."""
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    named, known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], function.__kwdefaults__ or {}
    total = len(named) + bool(code.co_flags & _REST) + bool(code.co_flags & _NAMED)
    if not all(name.isidentifier() for name in code.co_varnames[:total]):
        return None
    counts = [
        code.co_posonlyargcount,
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_flags & (_REST | _NAMED | _ASYNC),
    ]
    defaults = list(function.__defaults__ or ())
    keywords = [name for name in named[code.co_argcount :] if name in known]
    doc = function.__doc__ if type(function.__doc__) is str else None
    kinds = {name: kind for name, kind in function.__annotations__.items() if isinstance(kind, type)}
    facts = [*counts, list(code.co_varnames[:total]), len(defaults), keywords, doc, list(kinds)]
    return facts, [*defaults, *(known[name] for name in keywords), *kinds.values()]


class Callbacks:
    """The functions of the tests that a solution has been given, each one object whenever it comes.

    Args:
        ask: calls the function of that number.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._made: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}

    def made(self, number: int, name: str, facts: list[Any] | None) -> Any:
        """Returns the function of that number.

        Args:
            number: by which the tests know it.
            name: its name.
            facts: what `facts_of` says, with the defaults at the end; None for what is no `def`.
        """
        if number not in self._made:
            plain = Callback(number, name, self._ask)
            self._made[number] = plain if facts is None else _function(plain, name, facts)
            self._numbers[id(self._made[number])] = number
        return self._made[number]

    def number_of(self, value: Any) -> int | None:
        """Returns the number of a function of the tests; None for anything else."""
        return self._numbers.get(id(value))


class Callback:
    """A function of the tests, as the solution sees it."""

    def __init__(self, number: int, name: str, ask: Ask) -> None:
        self.number = number
        self.__name__ = self.__qualname__ = name
        self.__doc__ = None
        self._ask = ask

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._ask(self.number, given, named)


def _function(plain: Callback, name: str, facts: list[Any]) -> Any:
    """Returns a function with the parameters of the tests' own; a default that was not replaced is left to them."""
    only, first, keyword, flags, names, defaulted, keywords, doc, annotated, values = facts
    positional, named = names[:first], names[first : first + keyword]
    rest = names[first + keyword] if flags & _REST else ""
    more = names[-1] if flags & _NAMED else ""
    defaults, by_name = values[:defaulted], dict(zip(keywords, values[defaulted:], strict=False))
    free = _free_name([*names])
    parts = [*positional[:only], *(["/"] if only else []), *positional[only:]]
    parts += [f"*{rest}"] if rest else ["*"] if named else []
    parts += [*named, *([f"**{more}"] if more else [])]
    taken = f"({''.join(f'{each}, ' for each in positional)})"
    keys = f"{{{', '.join(f'{each!r}: {each}' for each in named)}}}"
    begins = "async def" if flags & _ASYNC else "def"
    text = f"{begins} function({', '.join(parts)}):\n return {free}({taken}, {rest or '()'}, {keys}, {more or '{}'})\n"

    def call(given: tuple[Any, ...], further: tuple[Any, ...], some: dict[str, Any], others: dict[str, Any]) -> Any:
        kept = list(given)
        while not further and kept and len(defaults) + len(kept) - first > 0:
            if kept[-1] is not defaults[len(kept) - first - 1 + len(defaults)]:
                break
            kept.pop()
        said = {key: value for key, value in some.items() if key not in by_name or by_name[key] is not value}
        return plain(*kept, *further, **said, **others)

    space: dict[str, Any] = {free: call}
    exec(text, space)
    function = space["function"]
    function.__defaults__ = tuple(defaults) or None
    function.__kwdefaults__ = by_name or None
    function.__name__ = function.__qualname__ = name
    function.__doc__, function.__module__ = doc, "tests"
    function.__annotations__ = dict(zip(annotated, values[defaulted + len(keywords) :], strict=True))
    return function


def _free_name(taken: list[str]) -> str:
    names: Iterator[str] = (f"_grpo_{number}" for number in count())
    return next(name for name in names if name not in taken)
