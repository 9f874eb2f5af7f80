"""Defines settings and the rules of their sections, and describes a setting for flags and pages.

steps: AtLeastOne | None = setting(None, "Optimizer steps.", left_out="60", flag="--steps")
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.fields import FieldInfo

NOUNS: dict[Any, str] = {bool: "bool", int: "int", float: "float", str: "str", Path: "path"}
LINK = re.compile(r"\[[^]]*\]\(([^)#]+)[^)]*\)")
AtLeastOne = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(gt=0, le=1)]  # of Adam, which moves a weight by about as much: beyond 1 is a slip
Share = Annotated[float, Field(ge=0, le=1)]

PLUGIN_TABLE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "A SPEC without options."},
        "options": {"type": "object", "description": "The plugin's own."},
        "weight": {"type": "number"},
        "as": {"type": "string", "description": "Its name in this run."},
        "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds for one call."},
        "reads": {"enum": ["turn", "rollout"], "description": "What a reward sees of several turns."},
        "mcp": {"type": ["string", "object", "array"], "description": "MCP servers whose tools an environment offers."},
    },
    "required": ["name"],
    "additionalProperties": False,
}
PluginRef = str | Annotated[dict[str, Any], WithJsonSchema(PLUGIN_TABLE)]


class Section(BaseModel):
    """What all sections keep to: frozen, no unknown keys, no infinity, no truth value for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, given: Any) -> Any:
        for name, value in given.items() if isinstance(given, Mapping) else ():
            field = cls.model_fields.get(name)
            section = None if field is None else field.annotation
            if isinstance(value, bool) and isinstance(section, type) and issubclass(section, BaseModel):
                switch = "enabled" if "enabled" in section.model_fields else next(iter(section.model_fields))
                raise ValueError(f"{name} is a section of settings. Write {name}.{switch}, or another setting of it")
            if isinstance(value, bool) and field is not None and "bool" not in str(field.annotation):
                raise ValueError(f"{name} is {value}, and it is not a setting that is true or false")
        return given


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of `grpo run` for a setting."""

    name: str  # with its dashes; of a switch that can be turned off, both names: "--lora/--full"
    metavar: str | None = None  # what stands for the value in the help; None: its type
    # one value; each: it may be repeated; pairs: repeated, two words each; table: repeated, NAME=VALUE each; commas: a
    # list in one word
    takes: Literal["one", "each", "pairs", "table", "commas"] = "one"
    panel: str = ""  # the group of `grpo run --help` that lists it; "": that of its section

    def __str__(self) -> str:
        names = self.name.split("/")
        if self.takes in ("pairs", "table", "commas"):
            names = [f"{name} {self.metavar}" for name in names]
        written = ", ".join(f"`{name}`" for name in names)
        return f"{written}{' (repeat)' if self.takes in ('each', 'pairs', 'table') else ''}"


@dataclass(frozen=True, slots=True)
class About:
    """What people read of a setting, in Markdown with links from the folder docs."""

    text: str  # what it is, in one sentence; also the help of its flag. May end in a colon, which `more` goes on from.
    more: str = ""  # what the page and the schema say further
    left_out: str = ""  # what stands for it where it is None, in a few words
    kind: str = ""  # a noun in place of the type's own
    flag: Flag | None = None  # of `grpo run`, where it has one


def setting(
    default: Any, text: str, more: str = "", *, left_out: str = "", kind: str = "", flag: Flag | str | None = None
) -> Any:
    """Declares a field of a section: its default, and what `About` says; a flag with one value by its name alone."""
    field = Field(default)
    field.metadata.append(About(text, more, left_out, kind, Flag(flag) if isinstance(flag, str) else flag))
    return field


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, as its declaration says."""

    key: str  # dotted, as in "train.steps"
    about: About  # for people
    forms: tuple[tuple[Any, tuple[Any, ...]], ...]  # each type that a value may have, with its bounds; without None
    default: Any  # None: left open until the run is planned
    required: bool  # there is no default

    @property
    def words(self) -> tuple[Any, ...]:
        """The values to choose from, where it is one of a few or a list of such."""
        items = [part for form, _ in self.forms for part in (form, *get_args(form)[: get_origin(form) is tuple])]
        return tuple(word for item in items if get_origin(item) is Literal for word in get_args(item))

    @property
    def kind(self) -> str:
        """The type and its bounds in Markdown: "int ≥ 1"."""
        if self.about.kind:
            return self.about.kind + between(self.forms[0][1])
        return ", or ".join(kind_of(form, bounds) for form, bounds in self.forms)

    @property
    def default_text(self) -> str:
        """The default in Markdown: a TOML value as code, or the words for what is chosen later."""
        if self.required:
            return "required"
        return self.about.left_out if self.default is None else f"`{json.dumps(self.default)}`"

    @property
    def text(self) -> str:
        """All that there is to say, without the type and the default."""
        return " ".join(filter(None, (self.about.text, self.about.more)))


def settings_of(root: type[BaseModel], prefix: str = "") -> dict[str, Setting]:
    """Returns dotted key to setting, in the order of their declaration. Raises TypeError."""
    settings: dict[str, Setting] = {}
    for name, field in root.model_fields.items():
        key = prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            settings |= settings_of(field.annotation, f"{key}.")
            continue
        about = [mark for mark in field.metadata if isinstance(mark, About)]
        if not about:
            raise TypeError(f"the setting {key} has no text. Declare it with setting(DEFAULT, 'TEXT')")
        forms = tuple(forms_of(field.annotation, tuple(mark for mark in field.metadata if mark is not about[0])))
        required = field.is_required()
        settings[key] = Setting(
            key, about[0], forms, None if required else field.get_default(call_default_factory=True), required
        )
    return settings


def forms_of(annotation: Any, bounds: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yields each type that an annotation stands for, with its bounds, None left out."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        more = [bound for mark in marks for bound in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
        yield from forms_of(inner, (*bounds, *more))
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from forms_of(member, bounds)
    elif annotation is not NoneType:
        yield annotation, bounds


def kind_of(form: Any, bounds: tuple[Any, ...]) -> str:
    """Returns a type with its bounds in words."""
    if get_origin(form) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(form))
    if get_origin(form) is tuple:
        return f"list of {', or '.join(kind_of(*item) for item in forms_of(get_args(form)[0]))}"
    return NOUNS[form] + between(bounds)


def between(bounds: tuple[Any, ...]) -> str:
    """Returns bounds as signs, to stand behind a noun: " ≥ 0, < 1"."""
    least = [f" ≥ {bound.ge}" for bound in bounds if isinstance(bound, Ge)]
    least += [f" > {bound.gt}" for bound in bounds if isinstance(bound, Gt)]
    most = [f" ≤ {bound.le}" for bound in bounds if isinstance(bound, Le)]
    most += [f" < {bound.lt}" for bound in bounds if isinstance(bound, Lt)]
    return ",".join(least + most)


def plain(text: str) -> str:
    """Returns Markdown as plain text: links as the files that they lead to, code as it is."""
    return LINK.sub(r"docs/\1", text).replace("`", "")
