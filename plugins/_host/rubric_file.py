"""Reads a rubric, whose components are named by SPEC, from a TOML file such as that of docs/writing-rewards.md."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo.plugins._spec.soundness import metadata_fault
from grpo.plugins._spec.spec_text import is_file
from grpo.plugins.errors import PluginNotFound, SpecError, UsageError, did_you_mean
from grpo.plugins.rubric import Component, RubricSpec, rubric
from grpo.plugins.types import Case

_RUBRIC_KEYS = ("name", "version", "doc", "combine", "components", "cases")
_CASE_KEYS = ("completion", "row", "expect", "options")
_COMPONENT_KEYS = ("reward", "name", "weight", "gate", "passes", "options", "timeout")
_TYPES: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "version": (int,),
    "doc": (str,),
    "combine": (str,),
    "components": (list,),
    "reward": (str,),
    "weight": (int, float),
    "gate": (bool,),
    "passes": (int, float),
    "options": (dict,),
    "timeout": (int, float),
    "cases": (list,),
    "completion": (list, str),
    "row": (dict,),
    "expect": (list, int, float),
}
_WORDS = {str: "text", int: "a whole number", float: "a number", list: "a list of tables", bool: "true or false"}


def rubric_from_file(path: Path) -> RubricSpec:
    """Returns the rubric that a TOML file describes; UsageError names the file and the key."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PluginNotFound(f"no file '{path}' (looked in {path.absolute().parent}).") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not text in UTF-8, as TOML has to be: {error.reason} at byte {error.start}."
        ) from None
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    fault = metadata_fault(path.stem, 1, 1.0) if "name" not in table else ""
    if fault:
        raise UsageError(
            f"{path}: a rubric is called as its file unless it says otherwise, and {fault}. Give it a name = ..."
        )
    try:
        return _rubric({"name": path.stem, **table}, path.resolve().parent, _RUBRIC_KEYS)
    except SpecError as error:
        raise UsageError(f"{path}: {error}") from error


def _rubric(table: Mapping[str, Any], folder: Path, known: tuple[str, ...]) -> RubricSpec:
    _refuse_unknown(table, known, f"rubric '{table['name']}'")
    parts = [_component(part, folder, table["name"]) for part in table.get("components", [])]
    return rubric(
        name=table["name"],
        version=table.get("version", 0),
        components=parts,
        combine=table.get("combine", "sum"),
        doc=table.get("doc", ""),
        cases=[_case(case, table["name"]) for case in table.get("cases", [])],
    )


def _case(table: object, inside: str) -> Case:
    if not isinstance(table, dict) or "completion" not in table:
        raise SpecError(f"rubric '{inside}': a case is {table!r}; write a table with the key 'completion'.")
    _refuse_unknown(table, _CASE_KEYS, f"rubric '{inside}', a case")
    return Case(**table)


def _component(table: object, folder: Path, inside: str) -> Component:
    if not isinstance(table, dict):
        raise SpecError(f"rubric '{inside}': a component is {table!r}; write a table with the key 'reward'.")
    what = f"rubric '{inside}', component '{table.get('name', table.get('reward', '?'))}'"
    if ("reward" in table) == ("components" in table):
        _refuse_unknown(table, tuple(dict.fromkeys((*_COMPONENT_KEYS, *_RUBRIC_KEYS))), what)
        raise SpecError(f"{what}: it needs either 'reward' (a SPEC) or 'components' of its own.")
    reward: str | RubricSpec
    if "reward" in table:
        _refuse_unknown(table, _COMPONENT_KEYS, what)
        reward = _absolute(table["reward"], folder)
    else:
        if "name" not in table:
            raise SpecError(f"{what}: components of its own need a 'name'.")
        inner = {key: value for key, value in table.items() if key in (*_RUBRIC_KEYS, "reward")}
        _refuse_unknown(table, (*_RUBRIC_KEYS, *_COMPONENT_KEYS[1:]), what)
        reward = _rubric(inner, folder, _RUBRIC_KEYS)
    given = {key: table[key] for key in _COMPONENT_KEYS[1:] if key in table}
    return Component(reward, **given)


def _absolute(spec: str, folder: Path) -> str:
    return str(folder / spec) if is_file(spec) and not spec.startswith(("/", "~")) else spec


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key, value in table.items():
        if key not in known:
            raise SpecError(f"{what}: unknown key '{key}'.{did_you_mean(key, known)} Allowed: {', '.join(known)}.")
        types = _TYPES[key]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            way = f": write [[{key}]]" if list in types and isinstance(value, dict) else ""
            raise SpecError(f"{what}: {key} is {value!r}; it must be {_WORDS.get(types[-1], 'a table')}{way}.")
