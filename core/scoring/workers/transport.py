"""Serialises a bound plugin for a worker process and restores it there.

Importable functions go by reference, others by value (cloudpickle), as a `Place` until `unpack`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import operator
import pickle
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from grpo.core.scoring.call import Bound
from grpo.plugins._spec.signature import written_function
from grpo.plugins.from_trl import MessagesFunction, TrlFunction
from grpo.plugins.specs import Option

_WRAPPERS = (TrlFunction, MessagesFunction)
_by_value = threading.Lock()


class Place:
    """What stands for a function while its plugin travels."""

    __slots__ = ()

    def resolve(self) -> Callable[..., Any]:
        """Returns the function; raises what importing or rebuilding it raises."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Reference(Place):
    """Where a fresh interpreter finds a function."""

    module: str  # the module's name
    qualname: str  # the name inside it; it stands for the function, or for the spec that was made of it
    file: str | None  # the file to load the module from when its name cannot be imported, or None

    def resolve(self) -> Callable[..., Any]:
        """Imports the function; raises if the module cannot be imported, or has no such function."""
        module = _loaded(self.module, self.file) if self.file else importlib.import_module(self.module)
        return function_in(module, self.qualname)


@dataclass(frozen=True, slots=True)
class Value(Place):
    """A function by value."""

    data: bytes  # of cloudpickle

    def resolve(self) -> Callable[..., Any]:
        """Rebuilds the function; raises if what it needs is missing here."""
        function: Callable[..., Any] = pickle.loads(self.data)
        return function


def pack_at(plugin: Bound, place: Place) -> bytes:
    return bytes(cloudpickle.dumps(_with_function(plugin, _rewrapped(plugin.spec.function, place))))


def pack_reference(plugin: Bound) -> bytes | None:
    """Returns the plugin with its function by reference, or None when its function has no place of its own."""
    function = written(plugin.spec.function)
    place = function if isinstance(function, Place) else find_reference(function)
    return None if place is None else pack_at(plugin, place)


def pack_value(plugin: Bound) -> bytes:
    """Returns the plugin with its function by value; raises if something that it needs cannot be pickled."""
    return pack_at(plugin, value_of(written(plugin.spec.function)))


def value_of(function: Any) -> Value:
    """Returns a function by value; raises if something that it needs cannot be pickled."""
    module = sys.modules.get(getattr(written_function(function), "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return Value(bytes(cloudpickle.dumps(function)))
    with _by_value:
        registered = module.__name__ in cloudpickle.list_registry_pickle_by_value()
        if not registered:
            cloudpickle.register_pickle_by_value(module)
        try:
            return Value(bytes(cloudpickle.dumps(function)))
        finally:
            if not registered:
                cloudpickle.unregister_pickle_by_value(module)


def unpack(packed: bytes) -> Bound:
    """Returns the plugin with its function; raises what importing or rebuilding that raises."""
    plugin: Bound = pickle.loads(packed)
    function = written(plugin.spec.function)
    resolved = function.resolve() if isinstance(function, Place) else function
    return _with_function(plugin, _rewrapped(plugin.spec.function, resolved))


def find_reference(function: Callable[..., Any]) -> Reference | None:
    """Returns where a fresh interpreter finds a function, or None when it finds it nowhere."""
    name, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    module = sys.modules.get(name or "")
    if name is None or module is None or name == "__main__" or not qualname or "<" in qualname:
        return None
    try:
        target = function_in(module, qualname)
    except AttributeError:
        return None
    if target is not function:
        return None
    if _importable(name, module):
        return Reference(name, qualname, None)
    file = getattr(module, "__file__", None)
    return Reference(name, qualname, file) if file and "." not in name else None


def function_in(module: ModuleType, qualname: str) -> Callable[..., Any]:
    """Returns the function of that name inside a module, or that of its spec. Raises AttributeError."""
    value: Any = operator.attrgetter(qualname)(module)
    function: Callable[..., Any] = value.function if hasattr(value, "kind") and hasattr(value, "function") else value
    return function


def written(function: Any) -> Any:
    """Returns the function that was written: the one inside, for one that was wrapped."""
    return function.func if isinstance(function, _WRAPPERS) else function


def _rewrapped(function: Any, written: Any) -> Any:
    return dataclasses.replace(function, func=written) if isinstance(function, _WRAPPERS) else written


def _with_function(plugin: Bound, function: Any) -> Bound:
    """Returns the plugin with another function and without what only people read."""
    names = [option.name for option in plugin.spec.options] if plugin.spec.rest else []  # none of them is a column
    options = tuple(Option(name, None) for name in names)
    spec: Any = dataclasses.replace(plugin.spec, function=function, doc="", options=options, cases=(), prepare=None)
    return dataclasses.replace(plugin, spec=spec)


def _importable(name: str, module: ModuleType) -> bool:
    path = None
    parent, _, _ = name.rpartition(".")
    if parent:
        path = getattr(sys.modules.get(parent), "__path__", None)
        if path is None:
            return False
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, None) if find is not None else None
        if spec is not None:
            return spec.origin == getattr(module, "__file__", None) or spec.origin in ("built-in", "frozen")
    return False


@functools.cache
def _loaded(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded as the module '{name}'")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), vars(module))  # as in `module_from_file`
    return module
