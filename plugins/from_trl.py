"""Adapts reward functions and callables written for TRL, which calls them with lists, to reward specs, without TRL."""

from __future__ import annotations

import contextlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Literal, TypeGuard

from grpo.plugins._spec.signature import is_async, name_of_function, resolved_hints, written_function
from grpo.plugins.decorators import refuse_faults
from grpo.plugins.errors import SpecError, with_article
from grpo.plugins.specs import Column, Option, RewardSpec
from grpo.plugins.types import Case, Completion, Isolation, Scored

Form = Literal["messages", "text"]

_OURS = ("prompts", "completions", "completion_ids", "log_extra", "log_metric")
_TRAINERS = ("trainer_state", "environments")
FORMS: dict[Form, str] = {"messages": "lists of messages", "text": "text"}
_MESSAGE_KEYS = ("content", "role")
_WITHOUT_TOKENS = Scored(None, reason="it reads completion_ids, and the tokens of these completions are unknown")
_NO_COLUMNS = (*_OURS, *_TRAINERS, "prompt", "completion")


@dataclass(frozen=True, slots=True)
class TrlFunction:
    """Calls a TRL function of the parameters `named` (`open`: any) with our completions."""

    func: Callable[..., Any]
    named: tuple[str, ...]
    open: bool
    form: Form

    def __call__(self, completions: Sequence[Completion], *columns: Any, form: Form | None = None) -> Any:
        """Calls the function once; the columns are taken from the rows."""
        if self._lacks_tokens(completions):
            return [_WITHOUT_TOKENS] * len(completions)
        return _returned(self.func(**self._arguments(completions, form)), len(completions))

    def _lacks_tokens(self, completions: Sequence[Completion]) -> bool:
        known = any(completion.token_ids or not completion.text for completion in completions)
        return "completion_ids" in self.named and not known

    def _arguments(self, completions: Sequence[Completion], form: Form | None) -> dict[str, Any]:
        form = form or self.form
        offered: dict[str, Any] = {
            "prompts": [_prompt(completion, form) for completion in completions],
            "completions": [_answer(completion, form) for completion in completions],
            "completion_ids": [list(completion.token_ids) for completion in completions],
            "log_extra": _not_logged,
            "log_metric": _not_logged,
        }
        columns = dict.fromkeys(name for completion in completions for name in completion.row)
        offered |= {
            name: [completion.row.get(name) for completion in completions]
            for name in columns
            if name not in _NO_COLUMNS
        }
        return {name: value for name, value in offered.items() if self.open or name in self.named}


@dataclass(frozen=True, slots=True)
class MessagesFunction:
    """Calls a function that takes one completion as a list of messages with one of ours."""

    func: Callable[..., Any]

    def __call__(self, completion: Completion | str, *columns: Any, **named: Any) -> Any:
        """Calls the function; a text alone is the one message of the policy."""
        with _form_explained():
            return self.func(_answer(_whole(completion), "messages"), *columns, **named)


@dataclass(frozen=True, slots=True)
class AsyncMessagesFunction(MessagesFunction):
    """The same for an `async def`."""

    async def __call__(self, completion: Completion | str, *columns: Any, **named: Any) -> Any:
        with _form_explained():
            return await self.func(_answer(_whole(completion), "messages"), *columns, **named)


@dataclass(frozen=True, slots=True)
class AsyncTrlFunction(TrlFunction):
    """The same for an `async def`."""

    async def __call__(self, completions: Sequence[Completion], *columns: Any, form: Form | None = None) -> Any:
        if self._lacks_tokens(completions):
            return [_WITHOUT_TOKENS] * len(completions)
        return _returned(await self.func(**self._arguments(completions, form)), len(completions))


def from_trl(
    function: Callable[..., Any],
    *,
    version: int = 0,
    name: str | None = None,
    form: Form | None = None,
    range: tuple[float, float] = (float("-inf"), float("inf")),
    cases: Sequence[Case] = (),
    isolation: Isolation = "process",
    timeout: float = 60.0,
) -> RewardSpec:
    """Makes a reward of a function that was written for TRL's `GRPOTrainer`, unchanged.

    It is called with keywords, once for a whole batch, as TRL calls it: lists of prompts, completions and
    completion_ids, and each column of the rows as a list (None where a row lacks it). `log_extra` and `log_metric` are
    there and drop what they are given. None is an abstention. Two things are stricter than in TRL: NaN is a failure,
    and a function that names `completion_ids` abstains where no tokens are known, as on completions of a file.

    Args:
        function: a function, an `async def`, or an object that can be called.
        version: the scoring contract; raise it when scores change. It may be left out in a file, not in a package.
        name: the public name; default: the function's.
        form: whether prompts and completions are lists of messages ("messages") or strings ("text"); default: what
            `completions` is annotated as; without that, messages where the function, or what it calls in its module,
            has the word "content" or "role" as a key, else text. Users can set it: `name:form=text`.
        range: lowest and highest score.
        cases: examples with their expected scores.
        isolation: see `RewardSpec`.
        timeout: seconds for one call, which scores a whole batch; hence more than elsewhere.

    Raises:
        SpecError: the function needs what only TRL's trainer has, or cannot be called by keywords.

    Example:
        >>> from grpo import Completion, from_trl
        >>> def brief(completions, limit, **kwargs):
        ...     return [float(len(c[0]["content"]) <= most) for c, most in zip(completions, limit)]
        >>> spec = from_trl(brief, version=1)
        >>> spec([Completion("hello", row={"limit": 9}), Completion("hello", row={"limit": 4})])
        [1.0, 0.0]
    """
    written = written_function(function)
    public = name or name_of_function(function)
    parameters = _parameters(function, public)
    named = tuple(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
    wrapped = AsyncTrlFunction if is_async(written) else TrlFunction
    form = form or form_of(written, "completions")
    spec = RewardSpec(
        name=public,
        version=version,
        function=wrapped(function, named, len(named) < len(parameters), form),
        doc=inspect.getdoc(written) or "",
        options=(Option("form", Form, form),),
        columns=tuple(
            Column(p.name, required=p.default is p.empty, default=None if p.default is p.empty else p.default)
            for p in parameters
            if p.kind is not p.VAR_KEYWORD and p.name not in _NO_COLUMNS
        ),
        range=tuple(range) if isinstance(range, list) else range,
        cases=tuple(cases),
        isolation=isolation,
        timeout=timeout,
        batch=True,
        whole=True,
    )
    refuse_faults(spec)
    return spec


def is_trl_function(value: object) -> TypeGuard[Callable[..., Any]]:
    """Returns whether something is a reward in TRL's manner: callable, with completions or their ids as parameters."""
    if not callable(value) or inspect.isclass(value):
        return False
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return False
    return "completions" in parameters or "completion_ids" in parameters


def _parameters(function: Callable[..., Any], public: str) -> list[inspect.Parameter]:
    """Returns the parameters that a call by keywords can fill; SpecError for what only TRL's trainer has."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise SpecError(f"'{public}' cannot be wrapped: {error}. from_trl takes a function.") from error
    kept = []
    for parameter in parameters:
        needed = parameter.default is parameter.empty
        if parameter.kind is parameter.POSITIONAL_ONLY and needed:
            raise SpecError(f"'{public}': the parameter '{parameter.name}' cannot be given by name, as TRL gives it.")
        if parameter.name in ("prompt", "completion") and needed:
            raise SpecError(
                f"'{public}' takes '{parameter.name}', and TRL gives '{parameter.name}s', a list. A function of one "
                "completion becomes a reward by the decorator @reward."
            )
        if parameter.name in _TRAINERS and needed:
            raise SpecError(
                f"'{public}' needs '{parameter.name}', which only TRL's trainer has. Give the parameter the default "
                "None and do without it, or write a reward of your own with @reward."
            )
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            kept.append(parameter)
    return [parameter for parameter in kept if parameter.name not in _TRAINERS]


def of_messages(function: Callable[..., Any]) -> MessagesFunction:
    """Returns a function that takes one completion as a list of messages, as a function of our completions."""
    wrapped = AsyncMessagesFunction if is_async(function) else MessagesFunction
    return wrapped(function)


def form_of(function: Callable[..., Any], parameter: str) -> Form:
    """Returns the form in which a function takes its completions: by the annotation, or else by its code."""
    hint = resolved_hints(function).get(parameter)
    inside = typing.get_args(hint) if parameter == "completions" else () if hint in (None, Any) else (hint,)
    if inside and inside != (Any,):
        return "text" if inside[0] in (str, Completion) else "messages"
    home = getattr(function, "__module__", "")
    return "messages" if any(_names_messages(part, home, set()) for part in _methods(function)) else "text"


def _methods(value: object) -> Iterator[FunctionType]:
    target = inspect.unwrap(value) if callable(value) else value
    target = getattr(target, "__func__", target)
    if isinstance(target, FunctionType):
        yield target
    else:
        made = target if inspect.isclass(target) else type(target)
        yield from (method for method in vars(made).values() if isinstance(method, FunctionType))


def _names_messages(function: FunctionType, home: str, known: set[FunctionType]) -> bool:
    """Returns whether a function has the key of a message in its code, or calls one of its module that has it."""
    known.add(function)
    codes = list(_codes(function.__code__))
    if any(constant in _MESSAGE_KEYS for code in codes for constant in code.co_consts if isinstance(constant, str)):
        return True
    names = {name for code in codes for name in code.co_names}
    called = (function.__globals__.get(name) for name in names)
    parts = (part for value in called if getattr(value, "__module__", None) == home for part in _methods(value))
    return any(part not in known and _names_messages(part, home, known) for part in parts)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@contextlib.contextmanager
def _form_explained() -> Iterator[None]:
    """Adds to the error of a function that seems to take its completion for a text what it gets."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        if type(error) not in (AttributeError, TypeError) or not re.search(r"\b(list|dict)\b", str(error)):
            raise
        hint = (
            "It gets the completion as a list of messages, since it reads their keys; with `completion: str` its text"
        )
        raise type(error)(f"{error}. {hint}") from error


def _whole(completion: Completion | str) -> Completion:
    return completion if isinstance(completion, Completion) else Completion(completion)


def _prompt(completion: Completion, form: Form) -> Any:
    if form == "messages":
        return [dict(message) for message in completion.prompt]
    return "\n\n".join(message["content"] for message in completion.prompt)


def _answer(completion: Completion, form: Form) -> Any:
    if form == "text":
        return completion.text
    if not completion.messages:
        return [{"role": "assistant", "content": completion.text}]
    return [dict(message) for message in completion.messages]


def _returned(values: Any, count: int) -> list[Any]:
    values = values.tolist() if hasattr(values, "tolist") else values
    if values is None:
        raise ValueError("it returned None, as a function without a `return` does; return a list with a score for each")
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ValueError(f"it returned {with_article(type(values).__name__)}; a TRL reward function returns a list")
    if len(values) != count:
        raise ValueError(f"it returned {len(values)} values for {count} completions")
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    """Returns a score as TRL reads it: true and false are 1 and 0, and an array of one value is that value."""
    value = value.item() if hasattr(value, "item") else value
    return float(value) if isinstance(value, bool) else value


def _not_logged(name: str, values: object) -> None:
    """Stands in for the trainer's own logging; a run records scores and completions itself."""
