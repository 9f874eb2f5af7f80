"""Reads a plugin function's signature: which columns it needs, which options it takes."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from grpo.plugins.errors import SpecError
from grpo.plugins.specs import REQUIRED, Column, Option
from grpo.plugins.types import Completion, Scope, Verdict

RESERVED_OPTIONS = ("weight", "as", "timeout", "reads", "mcp")
KEYS_OF_KIND: dict[str, tuple[str, ...]] = {
    "reward": ("weight", "as", "timeout", "reads"),
    "verifier": ("as", "timeout", "reads"),
    "env": ("weight", "as", "mcp"),
}
"""The reserved options that a kind takes; the others take none."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a signature says: columns, options, whether the completion comes whole, and the other columns too."""

    columns: tuple[Column, ...]
    options: tuple[Option, ...]
    whole: bool
    rest: bool


def read_signature(function: Callable[..., Any]) -> Signature:
    """Reads the signature of a reward or verifier. Raises SpecError."""
    if inspect.isclass(function):
        raise SpecError(f"{function.__qualname__} is a class. Give an object of it: {function.__name__}(...).")
    if not callable(function):
        raise SpecError(f"{function!r:.80} is not a function and cannot be called.")
    where = f"'{_qualified_name(function)}'"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise SpecError(f"{where}: its parameters cannot be read: {error}. Write a function that calls it.") from error
    if not parameters or parameters[0].name not in ("completion", "completions"):
        raise SpecError(
            f"{where}: the first parameter must be named 'completion' ('completions' where it takes a list). "
            "Dataset columns follow it by name, and options are keyword-only (after a bare '*'). "
            f"{_remedy(function, [parameter.name for parameter in parameters])}"
        )
    hints = resolved_hints(function)
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise SpecError(
                f"{where}: '{parameter}' hides what the function reads. Name every column as a positional "
                "parameter and every option as a keyword-only parameter; **kwargs takes the row's other columns."
            )
    columns = tuple(
        Column(p.name) if p.default is p.empty else Column(p.name, required=False, default=p.default)
        for p in parameters[1:]
        if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)
    )
    first = hints.get(parameters[0].name)
    whole = first is Completion or Completion in typing.get_args(first)
    rest = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return Signature(columns, _options(function, parameters, hints), whole, rest)


def _remedy(function: Callable[..., Any], names: Sequence[str]) -> str:
    if names[:1] == ["self"]:
        return "A method cannot be one: it needs its object."
    if "completion" in names:
        return f"Put it first: ({', '.join(['completion', *(name for name in names if name != 'completion')])})."
    name = getattr(function, "__name__", "")
    name = name if name.isidentifier() else "it"
    return f"A function with other parameters is called from one: def mine(completion, answer): return {name}(...)."


def written_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function without the arguments of `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def is_async(function: Callable[..., Any]) -> bool:
    """Returns whether calling a function returns an awaitable."""
    function = written_function(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def returns_verdict(function: Callable[..., Any]) -> bool:
    """Returns whether a function is a verifier: annotated to return a Verdict, or else with one in its code."""
    returned = resolved_hints(function).get("return", Any)
    if returned is not Any:
        return Verdict in (returned, *typing.get_args(returned))
    written = inspect.unwrap(written_function(function))
    code = getattr(written if inspect.isroutine(written) else type(written).__call__, "__code__", None)
    return code is not None and Verdict.__name__ in code.co_names


def name_of_function(function: Callable[..., Any]) -> str:
    """Returns the name of a function, of what a partial calls, or of the class of a callable object."""
    written = written_function(function)
    return getattr(written, "__name__", None) or type(written).__name__


def refuse_unfit_scope(plugin: str, function: Callable[..., Any], scope: Scope, *, batch: bool) -> None:
    """Raises SpecError for a scope that a function does not have."""
    if scope not in typing.get_args(Scope):
        raise SpecError(f"'{plugin}': scope {scope!r} must be one of {', '.join(typing.get_args(Scope))}.")
    first = next(iter(inspect.signature(function).parameters))
    if scope == "completion":
        if first == "completions" and not batch:
            raise SpecError(
                f"'{plugin}': 'completions' is a list, and a call gets one completion. Name it 'completion', or "
                "declare which list it is: scope='group' for those of one prompt, batch=True for a whole batch. A "
                "function in TRL's manner needs no decorator, or from_trl(function)."
            )
        return
    if batch:
        raise SpecError(
            f"'{plugin}': batch=True gives a function the whole batch, with a list for each column; scope='group' "
            "gives it the completions of one prompt, with the columns of its row. Keep one of them."
        )
    if first != "completions":
        raise SpecError(
            f"'{plugin}': with scope='group' the first parameter is 'completions', a list (of str, or of Completion if "
            f"annotated so), not '{first}'."
        )


def named_otherwise(columns: Sequence[Column], aliases: Mapping[str, Sequence[str]], plugin: str) -> tuple[Column, ...]:
    """Returns columns with their aliases. Raises SpecError."""
    known = [column.name for column in columns]
    taken = [*known, *(alias for names in aliases.values() for alias in names)]
    for name, names in aliases.items():
        if name not in known:
            raise SpecError(f"'{plugin}': aliases names '{name}', which is not a column. Columns: {', '.join(known)}.")
        if isinstance(names, str) or any(taken.count(alias) > 1 for alias in names):
            raise SpecError(
                f"'{plugin}': aliases of '{name}' are {names!r}; give a list of names that nothing else has."
            )
    return tuple(replace(column, aliases=tuple(aliases.get(column.name, ()))) for column in columns)


def options_of(function: Callable[..., Any]) -> tuple[Option, ...]:
    """Returns the keyword-only parameters of a function, a factory or a class as options. Raises SpecError."""
    plain_class = inspect.isclass(function) and not is_dataclass(function)
    hints = resolved_hints(function.__init__ if plain_class else function)
    return _options(function, inspect.signature(function).parameters.values(), hints)


def options_after(function: Callable[..., Any], *given: str) -> tuple[Option, ...]:
    """Returns the options of a function with these parameters and nothing else. Raises SpecError."""
    if not inspect.isfunction(inspect.unwrap(function)):
        raise SpecError(f"{function!r:.80} is not a function. Decorate a function; it may call an object of yours.")
    parameters = inspect.signature(function).parameters.values()
    read = [str(p).partition(":")[0] for p in parameters if p.kind is not p.KEYWORD_ONLY]
    if read != [*given]:
        raise SpecError(
            f"'{function.__qualname__}': it is given {' and '.join(map(repr, given))} alone, and takes: "
            f"{', '.join(read) or 'nothing'}. Write ({', '.join(given)}, *, options), each option as a keyword-only "
            "parameter."
        )
    return options_of(function)


def _options(
    function: Callable[..., Any], parameters: Iterable[inspect.Parameter], hints: Mapping[str, Any]
) -> tuple[Option, ...]:
    settled = _settled(function)
    options = tuple(
        Option(p.name, hints.get(p.name, Any), REQUIRED if p.default is p.empty else p.default)
        for p in parameters
        if p.kind is p.KEYWORD_ONLY and not (p.name in RESERVED_OPTIONS and p.name in settled)
    )
    for option in options:
        if option.name in RESERVED_OPTIONS:
            raise SpecError(
                f"'{_qualified_name(function)}': the option name '{option.name}' is reserved "
                f"(so are {', '.join(RESERVED_OPTIONS)}). Rename the parameter."
            )
    return options


def _settled(function: Callable[..., Any]) -> set[str]:
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= function.keywords.keys()
        function = function.func
    return names


def resolved_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the annotations with strings evaluated; one that cannot be, such as a type checker's, stays a string."""
    annotated = written_function(function)
    if not inspect.isroutine(annotated) and not inspect.isclass(annotated):
        annotated = type(annotated).__call__
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, AttributeError):
        names = getattr(inspect.unwrap(annotated), "__globals__", {})
        hints = getattr(annotated, "__annotations__", {})
        return {parameter: _evaluated(hint, names) for parameter, hint in hints.items()}


def _qualified_name(function: Callable[..., Any]) -> str:
    written = written_function(function)
    return getattr(written, "__qualname__", None) or type(written).__qualname__


def _evaluated(hint: Any, names: dict[str, Any]) -> Any:
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, names)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return hint
