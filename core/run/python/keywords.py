"""Reads the keywords of `grpo.train` that are settings into the tree of a configuration file.

A keyword is a section of the configuration with a dictionary, a setting of no section, or a flag of `grpo run` with
underscores: `train={"lr": 1e-4}` and `lr=1e-4` are the same.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from grpo.core.config.schema import RunConfig, named_elsewhere
from grpo.core.config.setting import settings_of
from grpo.plugins.errors import UsageError, did_you_mean

PLUGINS = ("env", "rewards", "env_rewards", "verifier")
_COMMAND = r"`[^`]*`|\bgrpo (?!run\b)[a-z]+(?: (?!with\b|and\b|or\b)[^\s.;]+)*"  # stays a command
_RESUME = (
    r"\bgrpo run --resume (?P<run>(?:'[^']*'|\x22[^\x22]*\x22|[^\s;])+?)(?: --steps (?P<steps>\w+))?(?=[.;,)]?(?:\s|$))"
)
_SET = r"--set (?P<key>[\w.]+)=(?P<value>[^\s,;)]*[^\s,;).])"
_FLAG = r"--(?P<flag>[a-z][\w-]*)(?: (?P<argument>\d[\w.]*\d|\d|[\w./-]*[./:][\w./:=,-]*\w|[A-Z][A-Z|]+\b))?"
_TABLE = r"(?<![\w.'\"])(?P<section>[a-z]+)\.(?P<name>[a-z_]+)=(?P<text>'[^']*'|[^\s,;)]*[^\s,;).])"


def settings_tree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tree that `parse_config` checks; None leaves a setting alone."""
    short = short_names()
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        key = name if isinstance(value, Mapping) and name in _sections() else short.get(name, name)
        if key.partition(".")[0] not in RunConfig.model_fields:
            raise UsageError(
                f"grpo.train has no argument '{name}'.{_meant(name, short)} See docs/configuration.md for all "
                "settings; those of a section are given as in train={'lr': 1e-4}."
            )
        if key in _sections() and not isinstance(value, (Mapping, type(None))):
            raise UsageError(f"{key} is a section of settings, and {value!r} is not a dictionary. Write {key}={{...}}.")
        for path, leaf in _leaves(key, _plain(value)):
            if leaf is not None:
                _put(tree, path, leaf, name)
    return tree


def _meant(name: str, short: Mapping[str, str]) -> str:
    if elsewhere := named_elsewhere(name):
        return f" Did you mean '{next((keyword for keyword, key in short.items() if key == elsewhere), elsewhere)}'?"
    return did_you_mean(name, [*RunConfig.model_fields, *short, "resume", "quiet"])


def short_names() -> dict[str, str]:
    """Returns keyword to dotted key for the settings with a flag, apart from those that name plugins."""
    flags = {key: setting.about.flag for key, setting in settings_of(RunConfig).items() if key not in PLUGINS}
    return {
        flag.name.partition("/")[0].removeprefix("--").replace("-", "_"): key
        for key, flag in flags.items()
        if flag is not None
    }


def by_keywords(text: str, settings: Mapping[str, Any]) -> str:
    """Returns a message in which settings that were given by short keywords go by these: "lr" for "train.lr"."""
    for name, key in short_names().items():
        if "." in key and name in settings:
            text = re.sub(rf"(?<![\w.']){re.escape(key)}(?![\w.]*\w)", name, text)
    return text


def leaves(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns dotted key to value for every setting of a tree."""
    return {path: value for name, given in tree.items() for path, value in _leaves(name, given)}


def _sections() -> set[str]:
    kinds = {name: field.annotation for name, field in RunConfig.model_fields.items()}
    return {name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}


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
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return value


def in_python(text: str) -> str:
    """Returns a message with keywords for flags; a command of its own, such as `grpo show RUN`, stays one."""
    return _words().sub(_reworded, text)


@functools.cache
def _words() -> re.Pattern[str]:
    return re.compile("|".join((f"(?P<command>{_COMMAND})", _RESUME, _SET, _FLAG, _TABLE)))


def _reworded(match: re.Match[str]) -> str:
    part = match.groupdict()
    if part["command"]:
        return match[0]
    if part["run"]:
        steps = "" if part["steps"] is None else f", steps={part['steps']}"
        return f"grpo.train(resume={''.join(shlex.split(part['run']))!r}{steps})"
    if part["key"]:
        return _keyword(part["key"], _value(part["value"]))
    if part["section"]:
        known = f"{part['section']}.{part['name']}" in settings_of(RunConfig)
        return _keyword(f"{part['section']}.{part['name']}", part["text"]) if known else match[0]
    return _keyword_of_flag(part["flag"], part["argument"]) or match[0]


def _keyword(key: str, value: str) -> str:
    section, dot, name = key.rpartition(".")
    return f'{section}={{"{name}": {value}}}' if dot else f"{name}={value}"


def _keyword_of_flag(flag: str, argument: str | None) -> str | None:
    plain = {"env": "env", "reward": "rewards", "env-reward": "env_rewards", "verifier": "verifier"}
    switches = {"dry-run": "dry_run=True", "quiet": "quiet=True"}
    for key, setting in settings_of(RunConfig).items():
        if setting.about.flag is None or key in PLUGINS:
            continue
        on, _, off = setting.about.flag.name.replace("--", "").partition("/")
        name = on.replace("-", "_")
        if setting.forms and setting.forms[0][0] is bool:
            switches |= {on: f"{name}=True"} | ({off: f"{name}=False"} if off else {})
        else:
            plain[on] = name
    if flag in switches:
        return f"{switches[flag]}{f' {argument}' if argument else ''}"
    if flag not in plain:
        return None
    return f"{plain[flag]}={'...' if argument is None or argument.isupper() else _value(argument)}"


def _value(text: str) -> str:
    try:
        return repr(json.loads(text))
    except ValueError:
        return text if text == "..." else repr(text)
