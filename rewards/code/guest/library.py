"""Functions of the standard library that look into an object: names in, the same functions but for stand-ins out.

`dataclasses.asdict(obj)` reads the class of what it is given. Of a stand-in that says nothing, so it is done in the
sandbox of the solution, and what comes of it crosses as any result does.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from grpo.rewards.code.guest.handles import Handle, inside

_FUNCTIONS = {
    "dataclasses": ("asdict", "astuple", "fields", "is_dataclass", "replace"),
    "inspect": (
        *("getdoc", "isabstract", "isasyncgen", "isasyncgenfunction", "isclass", "iscoroutinefunction", "isfunction"),
        *("isgenerator", "isgeneratorfunction", "ismethod", "isroutine", "signature"),
    ),
}


def offer_library(mentioned: set[str]) -> None:
    """Makes the functions that tests mention work with stand-ins."""
    for module, names in _FUNCTIONS.items():
        asked = mentioned.intersection(names) if module in mentioned else ()
        loaded = importlib.import_module(module) if asked else None
        for name in asked:
            plain = getattr(loaded, name)
            if not hasattr(plain, "grpo_plain"):
                setattr(loaded, name, _elsewhere(f"{module}.{name}", plain))


def _elsewhere(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(*given: Any, **named: Any) -> Any:
        if not given or type(given[0]) is not Handle:
            return plain(*given, **named)
        its = inside(given[0])
        return its.copy_of(its.remote.ask("library", its.number, name, given[1:], named))

    call.grpo_plain = plain  # type: ignore[attr-defined]
    return call
