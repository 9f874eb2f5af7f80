"""Scores on one node of a cluster, with its workers and event loop.

in:  ((packed plugin, distribution, version), runs on the loop?, retries, row numbers, indices of each call, items)
out: ("done", [result], [failures in full]) ("missing", what is not installed here) ("broken", text)
"""

from __future__ import annotations

import dataclasses
import pickle
import platform
import threading
import traceback
from functools import partial
from importlib import metadata

from grpo.core.scoring.call import Caller
from grpo.core.scoring.executors import Executors
from grpo.core.scoring.task import Task
from grpo.core.scoring.workers.child import read_item, to_wire
from grpo.core.scoring.workers.transport import unpack

_LOOK_AFTER = 0.05


class ScoringNode:
    """Scores for other machines; `memory` in bytes for each worker process."""

    def __init__(self, workers: int, memory: int | None = None) -> None:
        self._executors = Executors(workers, memory)
        self._callers: dict[tuple[bytes, int], Caller] = {}
        self._failures: dict[tuple[bytes, int], list[str]] = {}
        self._lock = threading.Lock()

    def score(self, message: bytes) -> bytes:
        """Answers one chunk of calls."""
        (packed, distribution, version), awaited, retries, rows, calls, items = pickle.loads(message)
        missing = _missing(distribution, version)
        if missing:
            return pickle.dumps(("missing", missing))
        key = (packed, retries)
        try:
            caller = self._caller(key, awaited)
            completions = [read_item(item) for item in pickle.loads(items)]
        except BaseException:  # the plugin's own module runs here, and may call sys.exit()
            return pickle.dumps(("broken", traceback.format_exc()))
        if caller.plugin.grouped and not caller.plugin.spec.whole:
            numbers = [number for number, call in enumerate(calls) for _ in call]
            completions = [
                dataclasses.replace(completion, group=n) for completion, n in zip(completions, numbers, strict=True)
            ]
        task = Task(caller, completions, rows)
        self._executors.submit(task)
        while not task.wait(_LOOK_AFTER):
            self._executors.check()
        with self._lock:
            failures, self._failures[key] = self._failures[key], []
        return pickle.dumps(("done", [to_wire(result) for result in task.results()], failures))

    def close(self) -> None:
        self._executors.close()

    def _caller(self, key: tuple[bytes, int], awaited: bool) -> Caller:
        """Returns what calls a plugin, the same each time: workers keep what they have loaded."""
        with self._lock:
            if key not in self._callers:
                packed, retries = key
                plugin = unpack(packed) if awaited else pickle.loads(packed)
                self._failures[key] = []
                self._callers[key] = Caller(plugin, retries=retries, report=partial(self._keep, key), alone=True)
            return self._callers[key]

    def _keep(self, key: tuple[bytes, int], text: str, error: BaseException | None) -> None:
        if not self._failures[key]:  # the first one of a chunk is told
            self._failures[key].append(text)


def _missing(distribution: str, version: str) -> str:
    if not distribution:
        return ""
    try:
        installed = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        installed = "not installed"
    if installed == version:
        return ""
    return f"{distribution} is {installed} (Python {platform.python_version()}), and the run was started with {version}"
