"""Records the plugins that a run used, and reports changes since then.

The hash covers the file that defines the plugin's function, not what it imports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from grpo.plugins._host.source_file import source_sha256
from grpo.plugins._spec.binding import Bound, BoundEnv, BoundReward, BoundSandbox
from grpo.plugins.rubric import RubricSpec, bound_components

_COMPARED = (
    *("distribution", "distribution_version", "version", "options", "combine", "weight", "reads", "mcp", "gate"),
    *("passes", "sha256"),
)


def lock_of(bound: Bound, distribution_version: str) -> dict[str, Any]:
    """Returns the record of one plugin.

    Its keys: kind, name (the alias, if any), plugin (the spec's name), version, distribution, distribution_version,
    options (defaults included), weight (or None), reads (unless the last turn), mcp (if any), sha256 (None without a
    source), of a reward given (the options that were set), columns (None: the whole row) and scope (if "group"), and of
    a rubric combine and components (their records, with weights and gates).
    """
    from pydantic_core import to_json

    spec = bound.spec
    function = bound.spec.factory if isinstance(bound, (BoundEnv, BoundSandbox)) else bound.spec.function
    defaults = {option.name: option.default for option in spec.options if not option.required}
    record = {
        "kind": spec.kind,
        "name": bound.name,
        "plugin": spec.name,
        "version": spec.version,
        "distribution": bound.distribution,
        "distribution_version": distribution_version,
        "options": json.loads(to_json(defaults | dict(bound.options), fallback=repr, inf_nan_mode="strings")),
        "weight": getattr(bound, "weight", None),
        "sha256": source_sha256(function),
    }
    if getattr(bound, "reads", "turn") != "turn":
        record["reads"] = "rollout"
    if isinstance(bound, BoundEnv) and bound.servers:
        record["mcp"] = [json.loads(to_json(server.record())) for server in bound.servers]
    if isinstance(bound, BoundReward):
        names = [name for column in bound.spec.columns for name in column.names]
        record |= {"given": list(bound.options), "columns": None if bound.spec.any_column else names}
        record |= {"scope": "group"} if bound.grouped else {}
    if isinstance(bound, BoundReward) and isinstance(bound.spec, RubricSpec):
        parts = zip(bound_components(bound), bound.spec.components, strict=True)
        components = [
            lock_of(part, "") | {"weight": inside.weight, "gate": inside.gate, "passes": inside.passes}
            for part, inside in parts
        ]
        record |= {"options": {}, "sha256": None, "combine": bound.spec.combine, "components": components}
    return record


def drift(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Returns what differs between two records of one plugin, one line each, most important first.

    Example:
        >>> drift({"kind": "reward", "name": "near", "version": 1}, {"kind": "reward", "name": "near", "version": 2})
        ["reward 'near': version was 1, is now 2"]
    """
    who = f"{after.get('kind')} '{after.get('name')}'"
    lines = []
    for key in _COMPARED:
        old, new = before.get(key), after.get(key)
        if key == "options" and isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += [
                f"{who}: option {name} was {old.get(name)!r}, is now {new.get(name)!r}"
                for name in sorted({*old, *new})
                if old.get(name) != new.get(name)
            ]
        elif key == "sha256":
            if old and new and old != new:
                lines.append(f"{who}: its source has changed")
        elif old != new:
            lines.append(f"{who}: {key.replace('_', ' ')} was {old!r}, is now {new!r}")
    old_parts, new_parts = ({part["name"]: part for part in lock.get("components", [])} for lock in (before, after))
    for name in {**old_parts, **new_parts}:
        if name in old_parts and name in new_parts:
            lines += drift(old_parts[name], new_parts[name])
        else:
            lines.append(f"{who}: the component '{name}' is {'new' if name in new_parts else 'gone'}")
    if list(old_parts) != list(new_parts) and set(old_parts) == set(new_parts):
        lines.append(f"{who}: its components are in another order")
    return lines
