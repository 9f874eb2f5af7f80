"""Makes the programs of the two sandboxes of a judge, and the standard input that says what they are to do.

The modules that run in a sandbox travel inside the program, compiled and in base64: to compile them for each job would
cost more than most solutions take. An interpreter of another version than this one compiles them itself. Sandboxes
with the capability "judge" have them already.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import marshal
import zlib
from collections.abc import Hashable
from importlib import resources
from typing import Any

from grpo.plugins.sandbox_job import CHANNEL, SandboxPool
from grpo.rewards.sandbox.bundle import JUDGE_MODULES, entry

_PACKAGE = "grpo.rewards.code.guest"
_LOADER = """\
import binascii, builtins, marshal, sys
def load(magic, packages, modules):
    kind = type(sys)
    for name in packages:
        sys.modules[name] = kind(name)
        sys.modules[name].__path__ = []
    same = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER == magic
    for name, code, source in modules:
        module = sys.modules[name] = kind(name)
        if not same:
            import zlib
            code = compile(zlib.decompress(binascii.a2b_base64(source)), name, "exec", dont_inherit=True)
        else:
            code = marshal.loads(binascii.a2b_base64(code))
        module.__dict__["__builtins__"] = dict(vars(builtins))
        exec(code, module.__dict__)
    return sys.modules
"""


def arguments(**given: Any) -> bytes:
    """Returns the standard input with which a program below does what the arguments of its `main` say."""
    return json.dumps(given).encode("ascii")


def guest(module: str, preloaded: bool) -> str:
    """Returns the program that runs a module of the package `guest` as one side of a pair."""
    if preloaded:
        return entry(module)
    return f"{_loading(JUDGE_MODULES)}['{_PACKAGE}.{module}'].main({CHANNEL})\n"


def printing_program(preloaded: bool, /, *, source: str) -> str:
    """Returns the program that runs another one as the main program."""
    modules = "__import__('sys').modules" if preloaded else _loading(("customs",))
    return f"{modules}['{_PACKAGE}.customs'].run_main({source!a})\n"


def preloaded_by(pool: SandboxPool) -> bool:
    """Returns whether a pool's sandboxes hold the modules of the judge before a job begins.

    A pool is asked once, as asking may look at the machine, and a pool that cannot be remembered not at all.
    """
    return isinstance(pool, Hashable) and _asked(pool)


@functools.lru_cache(maxsize=16)
def _asked(pool: SandboxPool) -> bool:
    return pool.capabilities().get("judge", False)


@functools.cache
def _loading(modules: tuple[str, ...]) -> str:
    """Returns the text that loads modules and stands for the loaded modules by name."""
    parts = _PACKAGE.split(".")
    packages = tuple(".".join(parts[: count + 1]) for count in range(len(parts)))
    loaded = []
    for name in modules:
        source = resources.files(_PACKAGE).joinpath(f"{name}.py").read_bytes()
        code = compile(source, name, "exec", dont_inherit=True, optimize=2)
        packed = (base64.b64encode(data).decode() for data in (marshal.dumps(code), zlib.compress(source, 9)))
        loaded.append((f"{_PACKAGE}.{name}", *packed))
    return f"{_LOADER}load({importlib.util.MAGIC_NUMBER!r}, {packages!r}, {tuple(loaded)!r})"
