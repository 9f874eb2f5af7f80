"""Reads the tasks of an OpenEnv server as rows; none where a server has no tasks.

A server of openenv 0.10 lists splits at /NAME/splits and their tasks at /NAME/num_tasks and /NAME/task_range; an
earlier one has no such routes (404), and one whose environment makes its own episodes answers 501.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from grpo.envs.datasets.checks import refuse_size
from grpo.plugins.errors import DatasetError

_SECONDS = 10.0
_FIRST_SECONDS = 3.0  # of a server that may not be there
_AT_ONCE = 500  # tasks
_HELD_OUT = 500  # at most, of a server with one split
_TYPES = {"train": ("train",), "test": ("test", "validation")}  # of splits, the better ones first


def offers_tasks(url: str) -> bool:
    """Returns whether a server that can be reached lists splits."""
    try:
        return bool(_splits(url, _FIRST_SECONDS)[1])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def task_rows(url: str, split: str) -> list[Mapping[str, Any]]:
    """Returns the tasks of a split; without a test split the last tenth, at most 500, is held out."""
    try:
        name, splits = _splits(url, _SECONDS)
        split_name = next((theirs for kind in _TYPES[split] for theirs, of in splits.items() if of == kind), None)
        theirs = split_name or next(iter(splits))
        count = int(_asked(f"{url}/{name}/num_tasks", _SECONDS, {"split": theirs})["num_tasks"])
        first, last = 0, count
        if not {*_TYPES["test"]} & {*splits.values()} or split_name is None:
            cut = count - min(_HELD_OUT, max(1, count // 10))
            first, last = (cut, count) if split == "test" else (0, cut)
        if last <= first:
            raise DatasetError(f"openenv:{url}: its split '{theirs}' has {count} tasks, too few for '{split}'.")
        refuse_size(last - first, f"openenv:{url}")
        rows: list[Mapping[str, Any]] = []
        for start in range(first, last, _AT_ONCE):
            wanted = {"split": theirs, "start": start, "stop": min(start + _AT_ONCE, last)}
            tasks = _asked(f"{url}/{name}/task_range", _SECONDS, wanted)["tasks"]
            rows += [_row(task, theirs, start + number) for number, task in enumerate(tasks)]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DatasetError(f"openenv:{url} did not list its tasks: {type(error).__name__}: {error}") from error
    if len(rows) != last - first:
        raise DatasetError(f"openenv:{url} listed {len(rows)} tasks of '{theirs}' where it has {last - first}.")
    return rows


def _row(task: Any, split: str, index: int) -> dict[str, Any]:
    fields = {str(name): value for name, value in task.items()} if isinstance(task, Mapping) else {"task": task}
    return {**fields, "split": split, "index": index}


def _splits(url: str, seconds: float) -> tuple[str, dict[str, str]]:
    """The environment's name as a part of an address, and its splits with their types."""
    (name,) = _asked(f"{url}/list_environments", seconds)
    listed = _asked(f"{url}/{quote(name, safe='')}/splits", seconds)
    splits = {str(split["name"]): str(split.get("type", "")) for split in listed}
    return quote(name, safe=""), splits


def _asked(address: str, seconds: float, data: Mapping[str, Any] | None = None) -> Any:
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        return json.load(answer)
