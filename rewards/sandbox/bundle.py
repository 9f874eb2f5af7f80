"""Packs our own modules into a memory file for an interpreter that cannot see our files.

The launcher compiles them for the zygote: what compiling leaves in memory would burden every fork. `STUB` and `SERVE`
are the `-c` programs that make modules of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from grpo.plugins.sandbox_job import CHANNEL

_SLACK = 4 * 2**20  # so that a write that reaches over the limit succeeds in part, and shows
_PACKAGE = "grpo.rewards.sandbox"
_WALL = f"{_PACKAGE}.inside"
_JUDGE = "grpo.rewards.code.guest"
_PACKAGES = ("grpo", "grpo.plugins", "grpo.rewards", _PACKAGE, _WALL, "grpo.rewards.code", _JUDGE)
_CONTRACT = tuple(f"grpo.plugins.{name}" for name in ("errors", "sandbox_job", "kernel"))
# In the order of their imports; each imports the standard library, the kernel's calls and those before it.
_INSIDE = ("syscall_numbers", "seccomp", "landlock", "wire", "waiting", "python_main", "runner", "zygote", "launcher")
_AROUND = ("frames", "bundle", "cgroup", "interpreter", "profiles", "plan", "slot", "capacity", "pool", "agent")
# What the judge runs in sandboxes, in the order of their imports: loaded by the zygote alone, so that no job has to.
JUDGE_MODULES = (
    *("plain", "near", "channel", "customs", "units", "guard", "soft", "laws", "served", "keeping"),
    *("together", "calling"),
)

STUB = """
import json, os, sys, types
def load(data):
    given = json.loads(data)
    for name, source in given["modules"].items():
        module = types.ModuleType(name)
        module.__file__ = name
        if source is None:
            module.__path__ = []
        sys.modules[name] = module
    sys.modules["grpo"].sources = given["modules"]
    for name, source in given["modules"].items():
        if source is not None and not name.startswith("grpo.rewards.code."):
            exec(compile(source, name, "exec"), sys.modules[name].__dict__)
    return given["plan"]
def read(descriptor):
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
"""
LAUNCH = STUB + "plan = load(read(int(sys.argv[2])))\n"
LAUNCH += f"sys.modules['{_WALL}.launcher'].main(int(sys.argv[1]), int(sys.argv[2]), plan)\n"
SERVE = f"""
import builtins, marshal, os, sys, types
def load(descriptor):
    modules, plan = marshal.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    os.close(descriptor)
    for name, code in modules:
        module = sys.modules[name] = types.ModuleType(name)
        if code is None:
            module.__path__ = []
    for name, code in modules:
        if code is not None:
            space = sys.modules[name].__dict__
            if name.startswith("grpo.rewards.code."):
                space["__builtins__"] = dict(vars(builtins))  # of its own: a program may change those of all
            exec(code, space)
    return plan
plan = load(4)
sys.modules['{_WALL}.zygote'].main(plan)
"""
# Its modules come first on its input, after their length.
ASSIST = (
    STUB
    + """
def exactly(size):
    parts = []
    while size:
        parts.append(os.read(0, min(size, 65536)))
        size -= len(parts[-1]) or sys.exit("the input ended")
    return b"".join(parts)
"""
)
ASSIST += "plan = load(exactly(int.from_bytes(exactly(4), 'big')))\n"
ASSIST += f"sys.modules['{_PACKAGE}.agent'].main(plan)\n"


@lru_cache(maxsize=1)
def _sources() -> dict[str, str | None]:
    given = getattr(sys.modules["grpo"], "sources", None)
    if given is not None:  # this process itself was made from a bundle
        return dict(given)
    loader: Any = sys.modules[__name__].__spec__.loader  # type: ignore[union-attr]
    here = os.path.dirname(os.path.abspath(__file__))
    folders = {
        _JUDGE: (os.path.join(os.path.dirname(here), "code", "guest"), JUDGE_MODULES),
        _WALL: (os.path.join(here, "inside"), _INSIDE),
        _PACKAGE: (here, _AROUND),
    }
    paths = {
        f"{package}.{name}": os.path.join(folder, f"{name}.py")
        for package, (folder, names) in folders.items()
        for name in names
    }
    plugins = os.path.join(os.path.dirname(os.path.dirname(here)), "plugins")
    first = {name: os.path.join(plugins, f"{name.rpartition('.')[2]}.py") for name in _CONTRACT}
    sources: dict[str, str | None] = dict.fromkeys(_PACKAGES)
    return sources | {name: loader.get_data(path).decode() for name, path in {**first, **paths}.items()}


def entry(module: str) -> str:
    """Returns the program that runs a module of the judge in a sandbox that holds it; see `guest_program`."""
    return f"__import__('sys').modules['{_JUDGE}.{module}'].main({CHANNEL})\n"


KNOWN = tuple(entry(module) for module in ("calling", "served", "keeping", "together"))
"""The programs that judges run again and again."""


def packed(plan: Mapping[str, Any], *, around: bool = False) -> bytes:
    """Returns what the stubs read: a plan, and the modules for a sandbox or (`around`) for the pool of a container."""
    modules = _sources()
    if not around:
        names = [f"{_WALL}.{name}" for name in _INSIDE] + [f"{_JUDGE}.{name}" for name in JUDGE_MODULES]
        modules = {name: modules[name] for name in (*_PACKAGES, "grpo.plugins.kernel", *names)}
    return json.dumps({"modules": modules, "plan": dict(plan)}).encode()


def memory_file(name: str, content: bytes) -> int:
    """Returns a descriptor of a memory file at its start, which cannot be changed any more."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.pwrite(descriptor, view, len(content) - len(view)) :]
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def output_file(name: str, most: int) -> int:
    """Returns a descriptor of an empty memory file that takes `most` bytes and little more.

    How much was written is the position of the descriptor, which the writer shares.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, most + _SLACK)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return descriptor
