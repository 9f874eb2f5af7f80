"""Makes the tables of docs/configuration.md and a JSON schema from the declarations of the settings."""

from __future__ import annotations

import re
from typing import Any

from grpo.core.config.schema import RunConfig
from grpo.core.config.setting import Setting, plain, settings_of

TABLE = re.compile(r"^(<!-- settings of (?:the run|\[(\w+)\]) -->\n)(?:\|.*\n)*", re.MULTILINE)
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def with_tables(page: str) -> str:
    """Returns a page whose tables, below the marks `<!-- settings of [section] -->`, are those of the declarations."""
    return TABLE.sub(lambda match: match[1] + table(match[2] or ""), page)


def table(section: str) -> str:
    """Returns the settings of a section, or "" for those of no section, as a table in Markdown."""
    rows = [setting for key, setting in settings_of(RunConfig).items() if key.rpartition(".")[0] == section]
    return "| setting | type | default | meaning |\n|---|---|---|---|\n" + "".join(map(row, rows))


def row(setting: Setting) -> str:
    meaning = " ".join(filter(None, (setting.text, str(setting.about.flag or ""))))
    return f"| `{setting.key}` | {setting.kind} | {setting.default_text} | {meaning} |\n"


def json_schema() -> dict[str, Any]:
    """Returns the JSON schema of a configuration's file, in which nothing is required: flags may name the rest."""
    root = RunConfig.model_json_schema()
    sections = root["$defs"]
    fields = {
        name: sections[field["$ref"].rpartition("/")[2]] if "$ref" in field else field
        for name, field in root["properties"].items()
    }
    for field in fields.values():
        field.pop("title", None)  # which pydantic makes of its name
    for key, setting in settings_of(RunConfig).items():
        section, _, name = key.rpartition(".")
        place = fields[section]["properties"] if section else fields
        place[name] = described(place[name], setting)
    return {
        "$schema": DIALECT,
        "title": "A run of grpo",
        "description": plain(root["description"]),
        "type": "object",
        "properties": fields,
        "additionalProperties": False,
    }


def described(field: dict[str, Any], setting: Setting) -> dict[str, Any]:
    """Returns a field's schema with the text of the setting; the default None is put in words."""
    left_out = f"Left out: {plain(setting.about.left_out)}." if setting.about.left_out else ""
    description = " ".join(filter(None, (plain(setting.text), left_out)))
    kept = {word: value for word, value in field.items() if word != "title" and (word, value) != ("default", None)}
    return {"description": description, **kept}
