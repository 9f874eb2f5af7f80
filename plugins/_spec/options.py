"""Checks the option values that a user gave against the types that a plugin declares."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from enum import Enum, EnumType
from pathlib import Path
from types import UnionType
from typing import Any, Literal

from grpo.plugins._spec.signature import KEYS_OF_KIND
from grpo.plugins._spec.spec_text import Unnamed, Value
from grpo.plugins.errors import OptionError, PluginError, did_you_mean
from grpo.plugins.specs import Option, Spec

_LIST, _TABLE = '["a","b"]', '{"a":1}'
_LISTS = ("list_type", "tuple_type", "set_type", "frozen_set_type", "sequence_str")
_JSON = {**dict.fromkeys(_LISTS, _LIST), "dict_type": _TABLE}
"""What an option looks like on a command line, by pydantic's error for a value of another type."""


def checked_options(
    spec: Spec, distribution: str, values: Mapping[str, Value], unnamed: Unnamed | None = None
) -> dict[str, Any]:
    """Returns keyword arguments for the given values; options without a value keep their defaults.

    Raises OptionError if a value has no name, or an option is unknown, missing or of the wrong type; PluginError if the
    plugin annotates an option with something that is not a type.
    """
    known = {option.name: option for option in spec.options}
    if unnamed is not None:
        open_options = [option for name, option in known.items() if name not in values]
        raise OptionError(_without_name(spec, distribution, open_options, unnamed))
    for name in values:
        if name not in known:
            near = did_you_mean(name, known) or did_you_mean(name, KEYS_OF_KIND.get(spec.kind, ()))
            raise OptionError(
                f"{spec.kind} '{spec.name}' has no option '{name}'.{near}{_column(name, spec)} "
                f"{_listed(spec, distribution)}"
            )
    for option in spec.options:
        if option.required and option.name not in values:
            raise OptionError(
                f"{spec.kind} '{spec.name}' needs the option '{option.name}' ({type_name(option.type)}). "
                f"Write {spec.name}:{option.name}=... {_listed(spec, distribution)}"
            )
    return {name: _converted(spec, distribution, known[name], value) for name, value in values.items()}


def _column(name: str, spec: Spec) -> str:
    if all(column.name != name for column in getattr(spec, "columns", ())):
        return ""
    return f" It reads '{name}' as a column: in its parameters, options come after a bare '*'."


def type_name(annotation: Any) -> str:
    """Returns an annotation as people write it: "float", "int | None", "'a' | 'b'"."""
    if annotation is None or annotation is type(None):
        return "None"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " | ".join(repr(argument) for argument in arguments)
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin in (typing.Union, UnionType):
        return " | ".join(type_name(argument) for argument in arguments)
    if isinstance(annotation, EnumType):
        return " | ".join(repr(member.value) for member in typing.cast("type[Enum]", annotation))
    if isinstance(annotation, type) and not arguments:
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _without_name(spec: Spec, distribution: str, open_options: list[Option], value: Unnamed) -> str:
    """Returns what to write for a value without a name: the whole SPEC, with one of `open_options`."""
    # required ones first, then those that take no text
    likely = sorted(open_options, key=lambda option: (not option.required, _takes(option, "some text")))
    remedies = []
    if value.key:
        remedies.append(f'If it belongs to {value.key}, write that as JSON: {value.key}="a,b" or {value.key}=[1,2].')
    if any(option.name == value.text for option in spec.options):
        remedies.append(f"Write {value.before}{value.text}=VALUE{value.after}.")
    elif option := next((option for option in likely if _takes(option, value.text)), None):
        write = "Or write" if remedies else "Write"
        remedies.append(f"{write} {value.before}{option.name}={value.text}{value.after}.")
    return (
        f"'{value.before}{value.text}{value.after}': expected key=value, found '{value.text}'. "
        f"{' '.join([*remedies, _listed(spec, distribution)])}"
    )


def _takes(option: Option, text: str) -> bool:
    import json

    from pydantic import PydanticUserError, ValidationError

    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = text
    try:
        _read(option, Value(parsed, text))
    except (ValidationError, PydanticUserError, NameError, TypeError):
        return False
    return True


def _listed(spec: Spec, distribution: str) -> str:
    if not spec.options:
        return "It takes no options."
    names = ", ".join(option.name for option in spec.options)
    place = f"{spec.kind}:{spec.name}"
    if distribution.endswith(".py"):
        place = f"{distribution}:{spec.name}"
    elif distribution.endswith(".toml"):
        place = distribution
    return f"Options: {names}. Read about them with: grpo plugins show {place}"


def _converted(spec: Spec, distribution: str, option: Option, value: Value) -> Any:
    from pydantic import PydanticUserError, ValidationError

    try:
        checked = _read(option, value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason, as_json = first["msg"], "" if first["loc"] else _JSON.get(first["type"], "")
        written = repr(value.parsed if value.typed is None else value.typed)
        remedy = f"Write it as JSON, such as {option.name}={as_json}. " if as_json else ""
        raise OptionError(
            f"{spec.kind} '{spec.name}': option '{option.name}' cannot be {written}: expected "
            f"{type_name(option.type)} ({reason[:1].lower()}{reason[1:]}). {remedy}{_listed(spec, distribution)}"
        ) from None
    except (PydanticUserError, NameError, TypeError) as error:
        raise PluginError(
            f"{spec.kind} '{spec.name}' of {distribution}: option '{option.name}' is annotated with "
            f"{option.type!r}, which values cannot be checked against ({type(error).__name__}). "
            "Its author must annotate it with a type that pydantic knows."
        ) from error
    return checked.absolute() if isinstance(checked, Path) else checked  # agents and sandboxes work elsewhere


def _read(option: Option, value: Value) -> Any:
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(option.type)
    try:
        return adapter.validate_python(value.parsed, strict=True)
    except ValidationError as error:
        last = error
    # Lax: "10" is an int and [1, 2] a tuple, but true is not 1; and `answer=72` may be meant as text.
    attempts = [] if isinstance(value.parsed, bool) else [value.parsed]
    if value.typed is not None and not isinstance(value.parsed, str):
        attempts.append(value.typed)
    for attempt in attempts:
        try:
            return adapter.validate_python(attempt)
        except ValidationError as error:
            last = error
    raise last
