"""Rewords pydantic's errors about settings, one line for each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from grpo.core.config.setting import settings_of
from grpo.plugins.errors import did_you_mean


def complaint(line: Any, root: type[BaseModel]) -> str:
    where = setting_at(line["loc"], root)
    if line["type"] == "extra_forbidden":
        known = sorted(settings_of(root))
        if isinstance(line["input"], Mapping):  # a misspelt section
            known = sorted({key.rpartition(".")[0] for key in known} - {""})
        return f"unknown setting '{where}'.{_meant(where, known)} See docs/configuration.md for all of them"
    message = line["msg"].removeprefix("Value error, ")
    message = message.replace("valid tuple", "list").partition(" or instance of ")[0].replace("dictionary", "table")
    message = re.sub(r"not a valid path for <class '[\w.]+'>", "not a path", message)
    shown = "" if line["type"] == "value_error" else f", not {line['input']!r}"
    return f"{where or 'configuration'}: {message[0].lower()}{message[1:]}{shown}"


def _meant(where: str, known: Sequence[str]) -> str:
    """Returns a question with the setting whose last name, or whose flag, somebody wrote, or else the closest one."""
    name = where.rpartition(".")[2].lstrip("-").replace("-", "_")
    of_that_name = [key for key in known if key.rpartition(".")[2] == name]
    return f" Did you mean '{of_that_name[0]}'?" if len(of_that_name) == 1 else did_you_mean(where, known)


def setting_at(location: Sequence[str | int], root: type[BaseModel]) -> str:
    """Joins a location; leaves out what pydantic adds to it for the alternatives of a type."""
    parts: list[str] = []
    section: Any = root
    for part in location:
        if section is None and isinstance(part, str):
            break
        parts.append(str(part))
        field = section.model_fields.get(part) if section is not None else None
        inner = field.annotation if field is not None else None
        section = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    return ".".join(parts)
