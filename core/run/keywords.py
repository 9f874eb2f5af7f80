"""The keywords of `grpo.train` that are settings: what was written in, the tree of a configuration file out.

A keyword is a section of the configuration with a dictionary, a setting of no section, or a flag of `grpo run` with
underscores: `train={"lr": 1e-4}` and `lr=1e-4` are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from grpo.core.config.schema import RunConfig
from grpo.core.config.setting import settings_of
from grpo.plugins.errors import UsageError, did_you_mean

PLUGINS = ("env", "rewards", "env_rewards", "verifier")


def settings_tree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tree that `parse_config` checks; None leaves a setting alone.

    Raises:
        UsageError: an unknown keyword, a section without a dictionary, or a setting that is given twice.
    """
    short = short_names()
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        key = name if isinstance(value, Mapping) and name in _sections() else short.get(name, name)
        if key.partition(".")[0] not in RunConfig.model_fields:
            known = [*RunConfig.model_fields, *short, "resume", "quiet"]
            raise UsageError(
                f"grpo.train has no argument '{name}'.{did_you_mean(name, known)} See docs/configuration.md for all "
                "settings; those of a section are given as in train={'lr': 1e-4}."
            )
        if key in _sections() and not isinstance(value, (Mapping, type(None))):
            raise UsageError(f"{key} is a section of settings, and {value!r} is no dictionary. Write {key}={{...}}.")
        for path, leaf in _leaves(key, _plain(value)):
            if leaf is not None:
                _put(tree, path, leaf, name)
    return tree


def short_names() -> dict[str, str]:
    """Returns keyword to dotted key for the settings with a flag, apart from those that name plugins."""
    flags = {key: setting.about.flag for key, setting in settings_of(RunConfig).items() if key not in PLUGINS}
    return {
        flag.name.partition("/")[0].removeprefix("--").replace("-", "_"): key
        for key, flag in flags.items()
        if flag is not None
    }


def leaves(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns dotted key to value for every setting of a tree."""
    return {path: value for name, given in tree.items() for path, value in _leaves(name, given)}


def _sections() -> set[str]:
    fields = RunConfig.model_fields.items()
    return {name for name, field in fields if isinstance(field.annotation, type) and _is_section(field.annotation)}


def _is_section(annotation: type[Any]) -> bool:
    return issubclass(annotation, BaseModel)


def _leaves(key: str, value: Any) -> list[tuple[str, Any]]:
    if key in _sections() and isinstance(value, Mapping):
        return [(f"{key}.{name}", given) for name, given in value.items()]
    return [(key, value)]


def _put(tree: dict[str, Any], path: str, value: Any, name: str) -> None:
    section, dot, last = path.rpartition(".")
    place = tree.setdefault(section, {}) if dot else tree
    if last in place:
        raise UsageError(f"{name}: '{path}' is given twice. Keep one of them.")
    place[last] = value


def _plain(value: Any) -> Any:
    """Returns a value as a configuration file could hold it: paths as text, sets and tuples as lists."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    return value
