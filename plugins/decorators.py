"""Provides `@reward` and `@verifier`, which turn a function into a callable spec and keep its types."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from grpo.plugins._spec.signature import (
    name_of_function,
    named_otherwise,
    read_signature,
    refuse_unfit_scope,
    written_function,
)
from grpo.plugins._spec.soundness import spec_fault
from grpo.plugins.errors import SpecError
from grpo.plugins.specs import Option, Parameters, RewardFunction, Spec, VerifierFunction
from grpo.plugins.types import Case, Isolation, Scope, Scored, Verdict

_EVERYTHING = (float("-inf"), float("inf"))
_Given = float | Scored | None
_Score = TypeVar("_Score", bound=_Given | Awaitable[_Given])
_Scores = TypeVar("_Scores", bound=Sequence[_Given] | Awaitable[Sequence[_Given]])
_Judged = Verdict | bool
_Cheats = Callable[[Mapping[str, Any]], Mapping[str, str]] | None
_Verdict = TypeVar("_Verdict", bound=_Judged | Awaitable[_Judged])
_Verdicts = TypeVar("_Verdicts", bound=Sequence[_Judged] | Awaitable[Sequence[_Judged]])


class FunctionSettings(TypedDict, total=False):
    """The arguments that say nothing about a function's type, the same for `reward` and `verifier`."""

    name: str | None
    cases: Sequence[Case]
    isolation: Isolation
    timeout: float
    prepare: Callable[..., None] | None
    aliases: Mapping[str, Sequence[str]] | None
    as_published: bool | Sequence[str]


@overload
def reward(function: Callable[Parameters, _Score], /) -> RewardFunction[Parameters, _Score]: ...


@overload
def reward(
    *,
    version: int = ...,
    range: tuple[float, float] = ...,
    batch: Literal[False] = ...,
    scope: Literal["completion"] = ...,
    **settings: Unpack[FunctionSettings],
) -> Callable[[Callable[Parameters, _Score]], RewardFunction[Parameters, _Score]]: ...


@overload
def reward(
    *,
    version: int = ...,
    range: tuple[float, float] = ...,
    batch: Literal[True],
    scope: Literal["completion"] = ...,
    **settings: Unpack[FunctionSettings],
) -> Callable[[Callable[Parameters, _Scores]], RewardFunction[Parameters, _Scores]]: ...


@overload
def reward(
    *,
    version: int = ...,
    range: tuple[float, float] = ...,
    batch: Literal[False] = ...,
    scope: Literal["group"],
    **settings: Unpack[FunctionSettings],
) -> Callable[[Callable[Parameters, _Scores]], RewardFunction[Parameters, _Scores]]: ...


def reward(
    function: Callable[..., Any] | None = None,
    /,
    *,
    version: int = 0,
    range: tuple[float, float] = _EVERYTHING,
    name: str | None = None,
    cases: Sequence[Case] = (),
    isolation: Isolation = "process",
    timeout: float = 10.0,
    batch: bool = False,
    scope: Scope = "completion",
    prepare: Callable[..., None] | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    as_published: bool | Sequence[str] = False,
) -> Any:
    """Makes a reward of a function that scores one completion (or, with `batch` or of a group, a list of them).

    The function returns a number (the score; True is 1 and False 0), None (abstain: the reward does not apply here) or
    a `Scored`. Raising is a failure of the plugin and never a score of zero. `@reward` without parentheses declares
    nothing.

    Args:
        function: the function, where the decorator stands without parentheses.
        version: the scoring contract; raise it when scores change. It may be left out in a file, not in a package.
        range: lowest and highest score.
        name: the public name; default: the function's.
        cases: examples with their expected scores.
        isolation: "process", "thread" or "inline"; see `RewardSpec`.
        timeout: seconds for one call.
        batch: the completion and the columns are lists.
        scope: "completion", or "group": one call gets the completions of one prompt, a list, with the columns of its
            row as they are, and returns a list with a score or None for each, in their order.
        prepare: called with the options when a SPEC is bound; raises a `UsageError` where they cannot work.
        aliases: column to other names under which data sets have it, as in `{"numbers": ["nums"]}`.
        as_published: True where it scores as somebody's published text does, quirks included, or the options that make
            it do so, as in `["variant"]`: what that text pays for is then a note of `grpo plugins check` and no error.

    Raises:
        SpecError: the signature or the metadata is not allowed.

    Example:
        >>> from grpo import reward
        >>> @reward(version=1, range=(0.0, 1.0), isolation="inline")
        ... def short(completion: str, *, limit: int = 10) -> float:
        ...     return 1.0 if len(completion) <= limit else 0.0
        >>> short("hello")
        1.0
    """
    metadata = {"version": version, "cases": tuple(cases), "isolation": isolation, "timeout": timeout, "batch": batch}
    metadata |= {"range": tuple(range) if isinstance(range, list) else range, "scope": scope, "prepare": prepare}
    return _decorator(RewardFunction, function, name, aliases, as_published, metadata)


@overload
def verifier(function: Callable[Parameters, _Verdict], /) -> VerifierFunction[Parameters, _Verdict]: ...


@overload
def verifier(
    *, version: int = ..., batch: Literal[False] = ..., cheats: _Cheats = ..., **settings: Unpack[FunctionSettings]
) -> Callable[[Callable[Parameters, _Verdict]], VerifierFunction[Parameters, _Verdict]]: ...


@overload
def verifier(
    *, version: int = ..., batch: Literal[True], cheats: _Cheats = ..., **settings: Unpack[FunctionSettings]
) -> Callable[[Callable[Parameters, _Verdicts]], VerifierFunction[Parameters, _Verdicts]]: ...


def verifier(
    function: Callable[..., Any] | None = None,
    /,
    *,
    version: int = 0,
    name: str | None = None,
    cases: Sequence[Case] = (),
    isolation: Isolation = "process",
    timeout: float = 10.0,
    batch: bool = False,
    prepare: Callable[..., None] | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    as_published: bool | Sequence[str] = False,
    cheats: _Cheats = None,
) -> Any:
    """Makes a verifier of a function that judges one completion and returns a `Verdict`, or True or False.

    The arguments mean what they mean for `reward`.

    Args:
        cheats: takes a row and returns completions that solve nothing, by what they do; see `VerifierSpec`.

    Raises:
        SpecError: the signature or the metadata is not allowed.
    """
    metadata = {"version": version, "cases": tuple(cases), "isolation": isolation, "timeout": timeout, "batch": batch}
    metadata |= {"prepare": prepare, "cheats": cheats}
    return _decorator(VerifierFunction, function, name, aliases, as_published, metadata)


def _decorator(
    made: type[Any],
    function: Callable[..., Any] | None,
    name: str | None,
    aliases: Mapping[str, Sequence[str]] | None,
    as_published: bool | Sequence[str],
    metadata: Mapping[str, Any],
) -> Any:
    def decorate(function: Callable[..., Any]) -> Any:
        signature = read_signature(function)
        public = name or name_of_function(function)
        refuse_unfit_scope(public, function, metadata.get("scope", "completion"), batch=metadata["batch"])
        spec = made(
            name=public,
            function=function,
            doc=inspect.getdoc(written_function(function)) or "",
            options=signature.options,
            columns=named_otherwise(signature.columns, aliases or {}, public),
            whole=signature.whole,
            rest=signature.rest,
            as_published=_published_by(as_published, signature.options, public),
            **metadata,
        )
        refuse_faults(spec)
        return spec

    if function is None:
        return decorate
    if not callable(function):
        refuse_positional(made.kind, (function,))
    return decorate(function)


def refuse_positional(name: str, misplaced: tuple[object, ...]) -> None:
    """Refuses positional arguments, such as the function below a bare `@reward`."""
    if len(misplaced) == 1 and callable(misplaced[0]):
        below = getattr(misplaced[0], "__name__", "the function")
        raise SpecError(f"@{name} stands above {below} without parentheses. Write @{name}(), or @{name}(version=1).")
    if misplaced:
        raise SpecError(f"@{name} takes its arguments by name. Write @{name}(version=1) above the function.")


def refuse_faults(spec: Spec) -> None:
    if fault := spec_fault(spec.kind, spec):
        raise SpecError(f"{fault}.")


def _published_by(as_published: bool | Sequence[str], options: Sequence[Option], name: str) -> bool | tuple[str, ...]:
    if isinstance(as_published, bool):
        return as_published
    known = [option.name for option in options]
    if isinstance(as_published, str) or not set(as_published) <= set(known):
        raise SpecError(
            f"'{name}': as_published is {as_published!r}; give True, or a list of its options: {', '.join(known)}."
        )
    return tuple(as_published)
