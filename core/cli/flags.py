"""Makes a click option of every setting that has a flag, and turns given flags into dotted keys and values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from grpo.core.config.schema import RunConfig, keys_of, named_elsewhere, toml_value
from grpo.core.config.setting import Flag, Setting, plain, settings_of
from grpo.plugins.errors import GrpoError, UsageError

SETTINGS = settings_of(RunConfig)
FLAGS = {key: setting.about.flag for key, setting in SETTINGS.items() if setting.about.flag is not None}
TYPES: dict[Any, click.ParamType[Any]] = {int: click.INT, float: click.FLOAT, Path: click.Path(path_type=Path)}
# The groups of the help in order, by section; a flag may name another one. Options of no setting are in the last.
PANELS = {
    "": "Task",
    "model": "Model",
    "lora": "LoRA",
    "train": "Training",
    "loss": "Loss",
    "rollout": "Sampling",
    "evaluation": "Evaluation",
    "output": "Output",
    "trackers": "Trackers",
    "canaries": "Canaries",
    "machine": "Machine",
}
QUOTES = "'\""
OTHERS = "Command"
_DOTTED = "|".join(re.escape(key) for key in sorted(FLAGS, key=len, reverse=True) if "." in key)
_BARE = "|".join(key for key in FLAGS if "." not in key)
VALUE = r"'[^']*'|\"[^\"]*\"|[\w./+:-]*\w"
KEYS = re.compile(
    rf"(?<![\w./'-])(?:--set )?(?P<key>{_DOTTED})(?:\.\d+)?(?![\w.]*\w)(?:=(?P<value>{VALUE}))?"
    rf"|(?:(?<=; )|^)(?P<bare>{_BARE})(?:\.\d+)?(?=: )"
)
WIDEST = 30  # characters of a flag beside whose text it stands

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class PanelOption(click.Option):
    """An option that stands in a panel of the help."""

    def __init__(self, *args: Any, panel: str = OTHERS, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.panel = panel


class SettingsCommand(click.Command):
    """A command that has every flag: its help lists them in panels, and its errors name them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the flags; one that other trainers have is refused with the name that it has here."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            key = named_elsewhere(error.option_name)
            if key is None:
                raise
            meant = FLAGS[key].name if key in FLAGS else f"--set {key}"
            message = f"No such option '{error.option_name}'. Did you mean '{meant}'?"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. Raises GrpoError: as the command does, with flags in the place of settings."""
        with naming_flags(ctx.params):
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the panels; those of other titles than `PANELS` come before the last one."""
        panels: dict[str, list[tuple[str, str]]] = {title: [] for title in PANELS.values()}
        last: list[tuple[str, str]] = []
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                title = getattr(option, "panel", OTHERS)
                (last if title == OTHERS else panels.setdefault(title, [])).append(record)
        width = min(WIDEST, max(len(flag) for flag, _ in itertools.chain(last, *panels.values())))
        for title, records in (*panels.items(), (OTHERS, last)):
            if records:
                with formatter.section(title):
                    formatter.write_dl([(flag.ljust(width), text) for flag, text in records], col_max=WIDEST)


def every_flag(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --config, --set and the flag of every setting that has one to a command; `given` reads the flags."""
    text = "Any setting, for example loss.num_iterations=2."
    command = click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help=text)(command)
    kind, text = click.Path(path_type=Path), "A TOML file with settings."
    command = click.option("--config", "config_file", type=kind, help=text)(command)
    for key, flag in reversed(FLAGS.items()):
        setting = SETTINGS[key]
        words = setting.words
        panel = PANELS[flag.panel or key.rpartition(".")[0]]
        attributes = {
            "cls": PanelOption,
            "panel": panel,
            "type": TYPES.get(type(words[0]) if words else setting.forms[0][0]),
            "default": None,
        }
        command = _option(setting, flag, words, attributes)(command)
    return command


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns dotted key to value, as a file would have it, of the flags that were given."""
    settings: dict[str, Any] = {}
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
        settings[key] = value
    return settings


@contextmanager
def naming_flags(values: Mapping[str, Any]) -> Iterator[None]:
    """Names the flags of settings in errors; settings of --set or --config keep the name that they have."""
    try:
        yield
    except GrpoError as error:
        typed = typed_as_settings(values["pairs"], values["config_file"], values)
        error.args = (named_by_flags(str(error), typed),)
        raise


def typed_as_settings(pairs: Iterable[str], config_file: Path | None, values: Mapping[str, Any]) -> set[str]:
    """Returns the settings that the user wrote by their keys, with --set or in a file, and not as flags."""
    keys = {pair.partition("=")[0].strip() for pair in pairs}
    with suppress(UsageError):  # the file is what is wrong
        keys |= keys_of(config_file)
    return keys - set(given(values))


def named_by_flags(text: str, typed: Collection[str] = ()) -> str:
    """Returns a text for people in which settings go by their flags: "train.lr=1" is "--lr 1"."""

    def flag_of(match: re.Match[str]) -> str:
        key, value = match["key"] or match["bare"], match["value"]
        if key in typed:
            return match[0]
        on, _, off = FLAGS[key].name.partition("/")
        if value in ("true", "false"):
            return on if value == "true" or not off else off
        return on if value is None else f"{on} {value.strip(QUOTES)}"

    return re.sub(r"(--[\w-]+) \(\1\)", r"\1", KEYS.sub(flag_of, text))


def _gathered(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    gathered: dict[str, list[str]] = {}
    for first, second in pairs:
        gathered.setdefault(first, []).append(second)
    return gathered


def table_of(flag: str, pairs: Iterable[str]) -> dict[str, Any]:
    """Returns name to value of texts `NAME=VALUE`, whose values are TOML or bare text. Raises UsageError."""
    table: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{flag} {pair}: write it as NAME=VALUE, for example {flag} enable_thinking=false")
        table[name.strip()] = toml_value(text.strip())
    return table


def _one_or_all(setting: Setting, values: list[str]) -> str | list[str]:
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
