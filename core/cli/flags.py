"""Makes a click option of every setting that has a flag, and reads what a user gave as dotted keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from grpo.core.config.schema import RunConfig, toml_value
from grpo.core.config.setting import Flag, Setting, plain, settings_of
from grpo.plugins.errors import UsageError

SETTINGS = settings_of(RunConfig)
FLAGS = {key: setting.about.flag for key, setting in SETTINGS.items() if setting.about.flag is not None}
TYPES: dict[Any, click.ParamType[Any]] = {int: click.INT, float: click.FLOAT, Path: click.Path(path_type=Path)}

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def every_flag(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --config, --set and the flag of every setting that has one to a command; `given` reads the flags."""
    text = "Any setting, for example loss.num_iterations=2."
    command = click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help=text)(command)
    kind, text = click.Path(path_type=Path), "A TOML file with settings."
    command = click.option("--config", "config_file", type=kind, help=text)(command)
    for key, flag in reversed(FLAGS.items()):
        setting = SETTINGS[key]
        words = setting.words
        attributes = {"type": TYPES.get(type(words[0]) if words else setting.forms[0][0]), "default": None}
        command = _option(setting, flag, words, attributes)(command)
    return command


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns dotted key to value, as a file would have it, of the flags that were given.

    Args:
        values: what click hands to a command that has every flag.
    """
    found: dict[str, Any] = {}
    for key, flag in FLAGS.items():
        value = values[_parameter(flag)]
        if value is None or (flag.takes in ("each", "pairs", "table") and not value):
            continue
        if flag.takes == "pairs":
            value = _gathered(value)
        elif flag.takes == "table":
            value = table_of(flag.name, value)
        elif flag.takes == "each":
            value = _one_or_all(SETTINGS[key], list(value))
        elif flag.takes == "commas":
            value = _one_or_all(SETTINGS[key], value.split(",") if value else [])
        found[key] = value
    return found


def _gathered(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Returns each first to its seconds, in order."""
    found: dict[str, list[str]] = {}
    for first, second in pairs:
        found.setdefault(first, []).append(second)
    return found


def table_of(flag: str, pairs: Iterable[str]) -> dict[str, Any]:
    """Returns name to value of texts `NAME=VALUE`, whose values are TOML or bare text.

    Raises:
        UsageError: one is written otherwise.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{flag} {pair}: write it as NAME=VALUE, for example {flag} enable_thinking=false")
        found[name.strip()] = toml_value(text.strip())
    return found


def _one_or_all(setting: Setting, values: list[str]) -> str | list[str]:
    """Returns a lone value by itself where the setting takes it without a list."""
    lone = len(values) == 1 and any(
        form is str or (get_origin(form) is Literal and values[0] in get_args(form)) for form, _ in setting.forms
    )
    return values[0] if lone else values


def _parameter(flag: Flag) -> str:
    return flag.name.partition("/")[0].removeprefix("--").replace("-", "_")


def _option(setting: Setting, flag: Flag, words: Sequence[Any], attributes: dict[str, Any]) -> Decorator:
    attributes |= {"metavar": flag.metavar, "help": _help(setting, flag, words)}
    if setting.forms[0][0] is bool:
        attributes |= {"is_flag": True, "type": None}
    elif flag.takes == "pairs":
        attributes |= {"multiple": True, "type": (str, str)}
    elif flag.takes in ("each", "table"):
        attributes |= {"multiple": True, "type": str}
    return click.option(flag.name, _parameter(flag), **attributes)


def _help(setting: Setting, flag: Flag, words: Sequence[Any]) -> str:
    text = plain(setting.about.text).rstrip(".:")
    if words and not setting.about.kind:
        text += f": {', '.join(map(str, words))}"
    if flag.takes in ("each", "pairs", "table"):
        text += "; repeat for several"
    on, _, off = flag.name.partition("/")
    if setting.default is None:  # left open, or required
        default = plain(setting.about.left_out)
    elif isinstance(setting.default, bool):
        default = off and (on if setting.default else off)
    elif isinstance(setting.default, float):
        default = f"{setting.default:g}"
    else:
        default = "" if setting.default in ((), {}) else str(setting.default)
    return f"{text}. Default: {default}." if default else f"{text}."
