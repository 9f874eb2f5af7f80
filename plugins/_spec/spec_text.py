"""Reads what a user writes to name a plugin: `[dist/]name[@version][:key=value,...]`, a file, or a TOML table.

A family of environments takes a name more, `gym:FrozenLake-v1[:key=value,...]`. A value is JSON if it reads as JSON up
to the next comma or the end, and otherwise bare text. No plugin is looked up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from grpo.plugins._pattern import lazy_pattern
from grpo.plugins._spec.soundness import COMMAND_LINE, RESERVED_PREFIXES
from grpo.plugins.errors import UsageError, did_you_mean
from grpo.plugins.specs import Kind
from grpo.plugins.types import Reads

PYTHON = "python:"
"""Stands before a file's function where a SPEC names an agent; it may be left out."""
SYNTAX = "[dist/]name[@version][:key=value,...], ./file.py:function[:key=value,...] or ./rubric.toml[:key=value,...]"
TABLE_KEYS = ("name", "weight", "as", "timeout", "reads", "mcp", "options")
_FILE = lazy_pattern(r"(?P<path>.*?\.py)(?::(?P<function>[^:]*)(?::(?P<options>.*))?)?", re.DOTALL)
_RUBRIC = lazy_pattern(r"(?P<path>[^:]*\.toml)(?::(?P<options>.*))?", re.DOTALL)
_MEMBER = lazy_pattern(r"(?P<member>[^=,\s]+?)(?::(?P<options>[\w.]+\s*=.*))?", re.DOTALL)
_FILE_STARTS = ("./", "../", "/", "~")
_FILE_ENDS = (".py", ".toml")
_DATA_ENDS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".jsonl.gz")


@dataclass(frozen=True, slots=True)
class Value:
    """An option's value: as read, and as typed (None when it came with a type of its own, from a table)."""

    parsed: Any
    typed: str | None = None


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A value without a name, such as `my.jsonl` in `rows:my.jsonl`; the plugin knows its option."""

    before: str  # the SPEC as far as the value
    text: str  # the value
    after: str  # the rest of the SPEC
    key: str  # the option just before it, whose value may go on in it, or ""


@dataclass(frozen=True, slots=True)
class SpecText:
    """What the user asked for."""

    written: str  # the text as the user wrote it, for errors
    name: str  # the plugin's name; for a Python file, the function's; for a rubric's file, the file's
    distribution: str = ""  # the distribution that the user named, or ""
    path: str = ""  # the file, or ""
    member: str = ""  # for a family of environments (`gym:FrozenLake-v1`), which of them, or ""
    version: int | None = None  # the version that the user insists on, or None
    options: Mapping[str, Value] = field(default_factory=dict)  # option name to value, without the reserved keys
    unnamed: Unnamed | None = None  # the first value that has no name and no = before it
    weight: float | None = None  # the weight, or None when not given
    alias: str = ""  # the value of `as`, or ""
    timeout: float | None = None  # seconds, or None when not given
    reads: Reads | None = None  # "turn" or "rollout", or None when not given
    mcp: Any = None  # the MCP servers whose tools an environment offers as well, as written, or None when not given


def parse(source: str | Mapping[str, Any]) -> SpecText:
    """Reads a SPEC from text or from a table. Raises UsageError."""
    if not isinstance(source, str):
        return _parse_table(source)
    text = source.strip().removeprefix(PYTHON)
    if text.startswith(f"{COMMAND_LINE}:"):  # the line is one option, whatever it holds
        line = text.removeprefix(f"{COMMAND_LINE}:").strip()
        return SpecText(source, COMMAND_LINE, options={"line": Value(line, line)})
    head, options = _split(text)
    named = _named(head, source)
    if options is None:
        return named
    values, unnamed = _pairs(options, source)
    return _complete(replace(named, unnamed=unnamed), values)


def is_file(text: str) -> bool:
    """Returns whether the SPEC names a file rather than an installed plugin."""
    return text.startswith(_FILE_STARTS) or text.partition(":")[0].endswith(_FILE_ENDS)


def _refuse_data(text: str) -> None:
    """Refuses a file of rows in place of a plugin; the UsageError names the environment that reads it."""
    if text.endswith(_DATA_ENDS):
        raise UsageError(f"'{text}' is a data set and no plugin. To train on its rows: --env rows:dataset={text}")


def _split(text: str) -> tuple[str, str | None]:
    if not text:
        raise UsageError(f"an empty SPEC names no plugin. Write {SYNTAX}.")
    if rubric := _RUBRIC.fullmatch(text):
        return rubric["path"], rubric["options"]
    if is_file(text):
        match = _FILE.fullmatch(text)
        if match is not None and match["function"] is None:
            return f"{match['path']}:", None  # whatever the file offers, if it is one thing
        if match is None or not match["function"]:
            from pathlib import Path

            if Path(text).expanduser().is_dir():
                raise UsageError(f"'{text}' is a folder. Name a file in it: ./file.py:function or ./rubric.toml.")
            _refuse_data(text)
            raise UsageError(
                f"'{text}' does not name a function of a Python file, nor a rubric. Write ./file.py:function or "
                "./rubric.toml."
            )
        return f"{match['path']}:{match['function']}", match["options"]
    _refuse_data(text.partition(":")[0])
    head, colon, options = text.partition(":")
    if head in RESERVED_PREFIXES and colon:
        match = _MEMBER.fullmatch(options.strip())
        if match is None:
            raise UsageError(f"'{text}' names no environment of '{head}'. Write {head}:NAME[:key=value,...].")
        return f"{head}:{match['member']}", match["options"]
    if head in get_args(Kind) and colon and "=" not in options:
        raise UsageError(
            f"'{text}': a SPEC does not name the kind. Write '{options.strip()}'; whether that is a reward, a "
            "verifier, an env or a sandbox follows from where the SPEC stands."
        )
    return head, options if colon else None


def _named(head: str, written: str) -> SpecText:
    path = ""
    if head.endswith(".toml"):
        from pathlib import Path

        return SpecText(written, Path(head).stem, path=head)
    family, colon, member = head.partition(":")
    if colon and family in RESERVED_PREFIXES:
        return SpecText(written, family, member=member)
    if is_file(head):
        path, _, head = head.rpartition(":")
    name, at, version = head.partition("@")
    distribution, slash, name = name.rpartition("/")
    if not (name or path) or (slash and not distribution) or any(character.isspace() for character in head):
        raise UsageError(f"'{written}' does not name a plugin. Write {SYNTAX}.")
    if at and not version.isdecimal():
        raise UsageError(f"'{written}': the version '{version}' must be a whole number, as in {name}@1.")
    return SpecText(written, name, distribution, path, version=int(version) if at else None)


def _pairs(text: str, written: str) -> tuple[dict[str, Value], Unnamed | None]:
    import json

    values: dict[str, Value] = {}
    decoder = json.JSONDecoder()
    position = 0
    key = ""
    while position <= len(text):
        match = re.compile(r"\s*([^\s=,]+)\s*=\s*").match(text, position)
        if match is None:
            piece, comma, after = text[position:].partition(",")
            if piece.strip():
                before = written.rstrip()[: position - len(text)]
                return values, Unnamed(before, piece.strip(), comma + after, key)
            raise UsageError(f"'{written}': expected key=value, found ''. Write {SYNTAX}.")
        key, position = match[1], match.end()
        try:
            parsed, end = decoder.raw_decode(text, position)
            following = re.compile(r"\s*(?:,|$)").match(text, end)
        except ValueError:
            following = None
        if following is None:
            end = text.find(",", position)
            end = len(text) if end < 0 else end
            parsed = text[position:end].strip()
            following = re.compile(r",|$").match(text, end)
        if key in values:
            raise UsageError(f"'{written}': '{key}' is given twice. Keep one.")
        values[key] = Value(parsed, text[position:end].strip())
        assert following is not None
        position = following.end() if following.group().endswith(",") else len(text) + 1
    return values, None


def _parse_table(table: Mapping[str, Any]) -> SpecText:
    name = table.get("name")
    if not isinstance(name, str) or not name.strip():
        rows = "" if "name" in table else " Rows of your own are given as the data set."
        raise UsageError(f'the table {dict(table)} names no plugin. Write name = "[dist/]name[@version]".{rows}')
    for key in table:
        if key not in TABLE_KEYS:
            raise UsageError(
                f"plugin '{name}': unknown key '{key}' in its table.{did_you_mean(str(key), TABLE_KEYS)} Allowed: "
                f"{', '.join(TABLE_KEYS)}. Options of the plugin stand under options: options = {{ {key} = ... }}."
            )
    options = table.get("options", {})
    if not isinstance(options, Mapping):
        raise UsageError(f"plugin '{name}': options must be a table, as in options = {{ key = value }}.")
    head, inline = _split(name.strip())
    if inline is not None:
        raise UsageError(f"plugin '{name}': put the options of a table under options, not into its name.")
    for key in options:
        if key in TABLE_KEYS[1:-1]:
            raise UsageError(f"plugin '{name}': '{key}' is not an option; write it beside name, not under options.")
    values = {key: Value(value) for key, value in options.items()}
    values |= {key: Value(table[key]) for key in TABLE_KEYS[1:-1] if key in table}
    return _complete(_named(head, name), values)


def _complete(named: SpecText, values: dict[str, Value]) -> SpecText:
    weight = _number(named, values, "weight", "a finite number")
    timeout = _number(named, values, "timeout", "a finite number of seconds above 0")
    if timeout is not None and timeout <= 0:
        raise UsageError(f"'{named.written}': timeout {timeout:g} must be a finite number of seconds above 0.")
    reads = values.pop("reads").parsed if "reads" in values else None
    if reads not in (None, *get_args(Reads)):
        raise UsageError(f"'{named.written}': reads={reads} must be one of {', '.join(get_args(Reads))}.")
    alias = ""
    if "as" in values:
        value = values.pop("as")
        alias = value.typed if value.typed is not None and not isinstance(value.parsed, str) else value.parsed
        if (
            not isinstance(alias, str)
            or not alias
            or "/" in alias
            or any(c.isspace() for c in alias)
            or not alias.isprintable()
        ):
            raise UsageError(
                f"'{named.written}': as={alias!r} must be a name without '/' and blanks, in plain letters."
            )
    mcp = values.pop("mcp").parsed if "mcp" in values else None
    return replace(named, options=values, weight=weight, alias=alias, timeout=timeout, reads=reads, mcp=mcp)


def _number(named: SpecText, values: dict[str, Value], key: str, expected: str) -> float | None:
    if key not in values:
        return None
    value = values.pop(key).parsed
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"'{named.written}': {key}={value} must be {expected}.")
    return number
