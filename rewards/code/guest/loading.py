"""Loads a solution as the module that tests import, under every name by which they may.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from grpo.rewards.code.guest.customs import SOLUTION_MODULES, customary

MODULE = "solution"
FILE = f"<{MODULE}>"
LONGEST = 300


def new_module() -> types.ModuleType:
    """Returns an empty module in which a solution will run, and makes every name for it importable."""
    module = types.ModuleType(MODULE)
    vars(module)["__builtins__"] = sys.modules["builtins"]
    for name in SOLUTION_MODULES:
        sys.modules[name] = module
    return module


def run_source(module: types.ModuleType, source: str, file: str = FILE) -> dict[str, Any]:
    """Runs a source text in a module, with the customary names that it mentions, and returns these."""
    space = vars(module)
    code = compile(source, file, "exec", dont_inherit=True)
    offered = {name: value for name, value in customary(code).items() if name not in space}
    space.update(offered)
    exec(code, space)
    return offered


def asked_for(module: types.ModuleType, name: str, given: dict[str, Any]) -> Any:
    """Returns the global of that name, or a function that calls the method of that name of a new `Solution`.

    What stood in the module before the program ran (`given`) is not the program's. Raises NameError for neither.
    """
    space = vars(module)
    own = name in space and space[name] is not given.get(name, space)
    kind = space.get("Solution")
    if not own and isinstance(kind, type) and callable(getattr(kind, name, None)):
        return lambda *args, **named: getattr(kind(), name)(*args, **named)
    if name not in space:
        raise NameError(f"name {name!r} is not defined")
    return space[name]


def line_of(error: BaseException) -> str:
    """Returns an exception in one line; one whose text fails gives its name."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:
        text = type(error).__name__
    return text[:LONGEST]
