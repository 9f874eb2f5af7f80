"""Our own modules for a fresh interpreter that cannot see our files: their sources in, a memory file out.

The launcher and the zygote run in interpreters without site packages, the zygote moreover where no file of ours
exists. They get the modules through a descriptor, and `STUB` is the `-c` program that makes modules of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_SLACK = 4 * 2**20  # so that a write that reaches over the limit succeeds in part, and shows
_PACKAGE = "grpo.rewards.sandbox"
# In the order of their imports. Each imports the standard library and those before it.
_MODULES = ("kernel", "syscall_numbers", "seccomp", "landlock", "wire", "python_main", "runner", "zygote", "launcher")

STUB = """
import json, os, sys, types
def load(descriptor):
    given = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    for name, source in given["modules"].items():
        module = types.ModuleType(name)
        module.__file__ = name
        if source is None:
            module.__path__ = []
        sys.modules[name] = module
        if source is not None:
            exec(compile(source, name, "exec"), module.__dict__)
    return given["plan"]
"""
LAUNCH = STUB + "plan = load(int(sys.argv[2]))\n"
LAUNCH += f"sys.modules['{_PACKAGE}.launcher'].main(int(sys.argv[1]), int(sys.argv[2]), plan)\n"
SERVE = STUB + "plan = load(4)\nos.close(4)\n"
SERVE += f"sys.modules['{_PACKAGE}.zygote'].main(plan['inside'])\n"


@lru_cache(maxsize=1)
def sources() -> dict[str, str | None]:
    """Returns the modules by name; packages have no source."""
    found: dict[str, str | None] = {"grpo": None, "grpo.rewards": None, _PACKAGE: None}
    for name in _MODULES:
        loader: Any = sys.modules[__name__].__spec__.loader  # type: ignore[union-attr]
        path = os.path.join(os.path.dirname(__file__), f"{name}.py")
        found[f"{_PACKAGE}.{name}"] = loader.get_data(path).decode()
    return found


def memory_file(name: str, content: bytes, *, sealed: bool = True) -> int:
    """Returns a descriptor of a memory file at its start; when sealed, nobody can change it."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.pwrite(descriptor, view, len(content) - len(view)) :]
    if sealed:
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def output_file(name: str, most: int) -> int:
    """Returns a descriptor of an empty memory file that takes `most` bytes and some more, and then no more.

    How much was written is the position of the descriptor, which the writer shares.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, most + _SLACK)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return descriptor


def bundled(plan: Mapping[str, Any]) -> int:
    """Returns a memory file with the modules and a plan."""
    return memory_file("grpo-bundle", json.dumps({"modules": sources(), "plan": plan}).encode())
