"""Loads a solution as the module that tests import, under every name by which they may.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

from grpo.rewards.code.guest.customs import SOLUTION_MODULES, customary

MODULE = "solution"
LONGEST = 300


def new_module() -> types.ModuleType:
    """Returns an empty module in which a solution will run, and makes every name for it importable."""
    module = types.ModuleType(MODULE)
    vars(module)["__builtins__"] = sys.modules["builtins"]
    for name in SOLUTION_MODULES:
        sys.modules[name] = module
    return module


def run_sources(module: types.ModuleType, sources: list[str], file: str = f"<{MODULE}>") -> dict[str, Any]:
    """Runs source texts one after the other in a module, with the customary names that they mention; returns these.

    Raises:
        BaseException: what the program raises, `SystemExit` included.
    """
    space = vars(module)
    offered: dict[str, Any] = {}
    for source in sources:
        code = compile(source, file, "exec", dont_inherit=True)
        offered |= {name: value for name, value in customary(code).items() if name not in space}
        space.update(offered)
        exec(code, space)
    return offered


def asked_for(module: types.ModuleType, name: str, given: dict[str, Any]) -> Any:
    """Returns the global of that name, or a function that calls the method of that name of a new `Solution`.

    Args:
        module: the solution.
        name: what the tests ask for.
        given: what stood in the module before the program ran, which is not the program's.

    Raises:
        KeyError: the program has neither.
    """
    space = vars(module)
    own = name in space and space[name] is not given.get(name, space)
    kind = space.get("Solution")
    if not own and isinstance(kind, type) and callable(getattr(kind, name, None)):
        return lambda *args, **named: getattr(kind(), name)(*args, **named)
    return space[name]


def silence() -> None:
    """Sends what is printed nowhere, and empties standard input, from which the orders of the judge came."""
    nowhere = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def line_of(error: BaseException) -> str:
    """Returns an exception in one line; one whose text fails gives its name."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:
        text = type(error).__name__
    return text[:LONGEST]
