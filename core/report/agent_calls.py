"""Separates an agent's calls, for the page, from the rest of a rollout's info."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from grpo.core.record.agent_calls import KEY, agent_of, depths

FILES = "files"


def split_info(info: str | None) -> tuple[dict[str, Any] | None, str | None]:
    """Returns an info's episode (calls with a `depth`, changed files), None without an agent, and the rest."""
    if info is None or f'"{KEY}"' not in info:
        return None, info
    try:
        value = json.loads(info)
    except (ValueError, RecursionError):
        return None, info
    record = agent_of(value) if isinstance(value, dict) else None
    if record is None:
        return None, info
    calls = [asdict(replace(call, new_ids=(), ids=())) for call in record.tree]
    tree = [{**call, "depth": depth} for call, depth in zip(calls, depths(record.tree), strict=True)]
    files = value.get(FILES)
    named = files.items() if isinstance(files, dict) else ()
    changed = {name: text for name, text in named if text is None or isinstance(text, str)}
    episode = {**asdict(replace(record, tree=())), "tree": tree, FILES: changed}
    return episode, json.dumps({name: own for name, own in value.items() if name not in (KEY, FILES)})


def public_agent(info: Mapping[str, Any], public: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns an info in which what an agent printed, and what it was refused, went through `public`."""
    if agent_of(info) is None:
        return dict(info)
    printed = {name: public(info[KEY][name]) for name in ("stdout", "stderr", "refused")}
    return {**info, KEY: {**info[KEY], **printed}}
