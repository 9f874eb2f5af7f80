"""Makes the spec of one member of a family of environments, such as `gym:FrozenLake-v1`, and imports what it needs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from grpo.plugins._spec.signature import RESERVED_OPTIONS
from grpo.plugins.errors import PluginNotFound
from grpo.plugins.specs import EnvSpec, Option


def member_spec(
    family: EnvSpec,
    member: str,
    make: Callable[..., Any],
    inner: Iterable[tuple[str, Any]] = (),
    taken: Iterable[str] = (),
    **fields: Any,
) -> EnvSpec:
    """Returns the spec of a member of a family; `fields`: further fields of the spec.

    `inner`: options of its own, with defaults, after the family's. `taken`: names that cannot be such options.
    """
    names = {*(option.name for option in family.options), *RESERVED_OPTIONS, *taken}
    own = (Option(name, Any, default) for name, default in inner if name not in names)
    return replace(
        family,
        name=f"{family.name}:{member}",
        factory=partial(make, member),
        options=(*family.options, *own),
        resolve=None,
        **fields,
    )


def imported(module: str, extra: str, wanted: str) -> Any:
    """Imports a module of an extra. Raises PluginNotFound if it is not installed, or cannot be imported."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        missing = error.name is not None and error.name.partition(".")[0] == package
        why = "which is not installed" if missing else f"which cannot be imported ({error})"
        raise PluginNotFound(
            f"{wanted} comes with {package}, {why}. Install it with: pip install 'grpo-kit[{extra}]'"
        ) from error


def named_module(place: str, spec: str, file_spec: str) -> ModuleType:
    """Imports a module, or executes a Python file. Raises PluginNotFound if there is none; UsageError if the file
    raises."""
    if place.endswith(".py"):
        from grpo.plugins._host.source_file import module_from_file

        path = Path(place).expanduser()
        if not path.is_file():
            raise PluginNotFound(f"no file '{place}' (looked in {path.absolute().parent}).")
        return module_from_file(path.resolve())
    if not all(part.isidentifier() for part in place.split(".")):
        raise PluginNotFound(f"{spec}: '{place}' is not the name of a module. Write a file as {file_spec}.")
    try:
        return importlib.import_module(place)
    except ImportError as error:
        raise PluginNotFound(
            f"{spec}: the module '{place}' cannot be imported: {error}. Write a file as {file_spec}."
        ) from error
