"""Makes the jobs of a judge's sandboxes, each of which runs a module of the package `guest`.

Sandboxes with the capability "judge" hold these modules; to others they travel as files beside the program.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Hashable, Mapping
from importlib import resources
from typing import Any

from grpo.plugins.sandbox_job import CHANNEL, Job, SandboxPool
from grpo.rewards.sandbox.bundle import JUDGE_MODULES, entry

_PACKAGE = "grpo.rewards.code.guest"


def guest_job(pool: SandboxPool, module: str, orders: Mapping[str, Any], **job: Any) -> Job:
    """Returns the job that runs `main` of a module with these orders; `job` has its other fields."""
    given = json.dumps(orders).encode("ascii")
    if _holds_judge(pool):
        return Job(entry(module), stdin=given, **job)
    return Job(f"from {_PACKAGE} import {module}\n{module}.main({CHANNEL})\n", stdin=given, files=_files(), **job)


def printing_job(pool: SandboxPool, source: str, **job: Any) -> Job:
    """Returns the job that runs a program as the main program."""
    program = f"import sys\nsys.modules['{_PACKAGE}.customs'].run_main({source!a})\n"
    if _holds_judge(pool):
        return Job(program, **job)
    return Job(f"import {_PACKAGE}.customs\n{program}", files=_files(), **job)


def _holds_judge(pool: SandboxPool) -> bool:
    """Asks a pool once, as asking may look at the machine; a pool that cannot be remembered is not asked."""
    return isinstance(pool, Hashable) and _asked(pool)


@functools.lru_cache(maxsize=16)
def _asked(pool: SandboxPool) -> bool:
    return pool.capabilities().get("judge", False)


@functools.cache
def _files() -> dict[str, bytes]:
    parts = _PACKAGE.split(".")
    packages = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    modules = {name: resources.files(_PACKAGE).joinpath(f"{name}.py").read_bytes() for name in JUDGE_MODULES}
    return {f"{package}/__init__.py": b"" for package in packages} | {
        f"{packages[-1]}/{name}.py": source for name, source in modules.items()
    }
