"""Checks that the engine can use a spec, which may have been built by hand."""

from __future__ import annotations

import inspect
import math
import sys
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from grpo.plugins._spec.signature import RESERVED_OPTIONS
from grpo.plugins.agents import Answer, Protocol
from grpo.plugins.specs import AgentSpec, Column, EnvSpec, Kind, Option, Spec
from grpo.plugins.training import Average, Entropies
from grpo.plugins.types import Case, Isolation, Scope

SPEC_OF_KIND: dict[Kind, type[Any]] = {made.kind: made for made in typing.get_args(Spec)}
COMMAND_LINE = "cmd"
"""Names a command line in a SPEC, `cmd:python agent.py {instruction}`, and the built-in agent that starts it."""
RESERVED_PREFIXES = ("gym", "reasoning_gym", "textarena", "trl", "openenv", "verifiers", "shell", "harbor")
_SEPARATORS = "/@:,= \t\n"
_WORDS: dict[str, tuple[str, ...]] = {
    "isolation": typing.get_args(Isolation),
    "scope": typing.get_args(Scope),
    "average": typing.get_args(Average),
    "entropies": typing.get_args(Entropies),
    "answer": typing.get_args(Answer),
}
"""What an attribute may be, of the specs that have it."""
_OF_FACTORIES: tuple[Kind, ...] = ("env", "sandbox", "session")
_EXPECTED: dict[Kind, str] = {
    "reward": "a function, or what @reward makes of one",
    "verifier": "a function that returns a Verdict, or what @verifier makes of one",
    "env": "a class of gymnasium.Env, or what @env makes of a function",
}


def spec_fault(kind: Kind, spec: object) -> str:
    """Returns why `spec` cannot be used as a plugin of that kind, or ""."""
    expected = SPEC_OF_KIND[kind]
    if not isinstance(spec, expected):
        hint = ""
        if inspect.isfunction(spec):
            hint = f"; decorate it with @{kind}(version=1)"
        elif inspect.isclass(spec) and kind in _OF_FACTORIES:
            hint = f"; make a spec of it: {kind}(version=1)({spec.__name__})"
        elif isinstance(spec, (list, tuple)):
            hint = "; give its functions one by one"
        elif inspect.isclass(spec):
            hint = f"; name an object of it, as in judge = {spec.__name__}(...)"
        return f"expected {_EXPECTED.get(kind, f'what @{kind} makes of a function')}, got {_described(spec)}{hint}"
    known: Any = spec
    family = isinstance(spec, EnvSpec) and spec.resolve is not None
    if family and known.name not in RESERVED_PREFIXES:
        return f"{known.name!r} cannot be a family of environments: those are {', '.join(RESERVED_PREFIXES)}"
    special = family or (isinstance(spec, AgentSpec) and known.name == COMMAND_LINE)
    fault = "" if special else metadata_fault(known.name, known.version, getattr(known, "timeout", 1.0))
    if fault:
        return fault
    function = known.factory if kind in _OF_FACTORIES else known.function
    if not callable(function):
        return f"'{known.name}': {_described(function)} is not callable"
    return _fields_fault(known)


def metadata_fault(name: object, version: object, timeout: object) -> str:
    """Returns why a name, a version or a time limit in seconds cannot be used, or ""."""
    if isinstance(name, str) and type(name) is not str:  # one whose methods are the plugin's own
        return f"{name!r} cannot be a plugin name: it is of the class '{type(name).__name__}', not a plain str"
    if not isinstance(name, str) or not name or any(character in name for character in _SEPARATORS):
        return f"{name!r} cannot be a plugin name: SPECs use '/', '@', ':', ',', '=' and blanks as separators"
    if not name.isprintable():
        return f"{name!a} cannot be a plugin name: it has characters that a terminal obeys and does not show"
    if name in (*RESERVED_PREFIXES, COMMAND_LINE, "python") or name.endswith((".py", ".toml")):
        return f"'{name}' cannot be a plugin name: SPECs give it another meaning. Call it something else"
    if type(version) is not int or version < 0:
        return f"'{name}': version {version!r} must be a whole number, 1 or more"
    if version > sys.maxsize:
        return f"'{name}': its version has {version.bit_length()} bits; count releases: 1, 2, 3"
    if not is_finite(timeout) or timeout <= 0:
        return f"'{name}': timeout {timeout!r} must be a finite number of seconds above 0"
    return ""


def case_fault(name: str, scope: str, cases: Sequence[Case]) -> str:
    """Returns why cases do not fit what one call of a plugin scores, or ""."""
    if scope == "completion" and any(case.several for case in cases):
        return (
            f"'{name}': a case has several completions, but one call scores one. Declare scope='group', or write a "
            "case for each"
        )
    return ""


def _fields_fault(spec: Any) -> str:
    where = f"'{spec.name}': "
    if type(spec.doc) is not str:
        return f"{where}doc must be text, a plain str, got {_described(spec.doc)}"
    for attribute, type_ in (("options", Option), ("columns", Column), ("cases", Case)):
        values = getattr(spec, attribute, ())
        given = values if isinstance(values, tuple) else (values,)
        for value in given:
            if value is values or not isinstance(value, type_):
                return f"{where}{attribute} must be a tuple of {type_.__name__}, got {_described(value)}"
    for option in spec.options:
        if option.name in RESERVED_OPTIONS:
            return f"{where}the option name '{option.name}' is reserved, as are all of: {', '.join(RESERVED_OPTIONS)}"
    for attribute, words in _WORDS.items():
        if getattr(spec, attribute, words[0]) not in words:
            return f"{where}{attribute} {getattr(spec, attribute)!r} must be one of {', '.join(words)}"
    bounds = getattr(spec, "range", (0.0, 1.0))
    numbers = isinstance(bounds, tuple) and len(bounds) == 2 and all(_is_number(bound) for bound in bounds)
    if not numbers or not bounds[0] <= bounds[1]:
        return f"{where}range {bounds!r} must be (lowest, highest)"
    if fault := _table_fault(spec):
        return f"{where}{fault}"
    if isinstance(spec, AgentSpec) and (fault := _agent_fault(spec)):
        return f"{where}{fault}"
    if isinstance(spec, EnvSpec) and (fault := _env_fault(spec)):
        return f"{where}{fault}"
    whole = getattr(spec, "complete", True)  # the scope of a rubric follows from its components
    return case_fault(spec.name, getattr(spec, "scope", "completion"), getattr(spec, "cases", ())) if whole else ""


def _env_fault(spec: EnvSpec) -> str:
    rewards, turns = spec.rewards, spec.max_turns
    if not isinstance(rewards, tuple) or not all(isinstance(reward, str) for reward in rewards):
        return f'rewards {rewards!r} must be a tuple of SPECs, as in ("proximity",)'
    if not isinstance(turns, int) or isinstance(turns, bool) or turns < 1:
        return f"max_turns {turns!r} must be a whole number, 1 or more"
    for name in ("dataset", "ordered", "settle"):
        function = getattr(spec, name)
        if function is not None and not callable(function):
            return f"{name} must be a function or None, got {_described(function)}"
    return ""


def _agent_fault(spec: AgentSpec) -> str:
    known = typing.get_args(Protocol)
    if not isinstance(spec.protocols, tuple) or not spec.protocols or not {*spec.protocols} <= {*known}:
        return f"protocols {spec.protocols!r} must be a tuple of {', '.join(known)}"
    return ""


def _table_fault(spec: Any) -> str:
    for attribute in ("environment", "programs", "modules"):
        table = getattr(spec, attribute, {})
        texts = isinstance(table, Mapping) and all(isinstance(text, str) for pair in table.items() for text in pair)
        if not texts:
            return f"{attribute} must map names to texts, got {_described(table)}"
    return ""


def _is_number(value: Any) -> TypeGuard[float]:
    """Returns whether a value is a number that a float holds; an int of 400 digits is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


def is_finite(value: Any) -> TypeGuard[float]:
    """Returns whether a value is a finite number that a float holds."""
    return _is_number(value) and math.isfinite(value)


def _described(value: object) -> str:
    if inspect.isfunction(value):
        return f"the plain function '{value.__name__}'"
    if inspect.isclass(value):
        return f"the class '{value.__name__}'"
    if isinstance(value, Spec):
        return f"the {value.kind} '{value.name}'"
    return (
        f"{type(value).__name__} {str(value)[:60]!r}" if isinstance(value, (str, int, float)) else type(value).__name__
    )
