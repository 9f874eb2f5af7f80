"""Packs a plugin for another machine: by name if installed, a local file with its imports, a notebook by value."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from grpo.core.processes.lookups import distributions_by_package
from grpo.core.scoring.call import Bound
from grpo.core.scoring.workers.transport import Place, find_reference, function_in, pack_at, value_of, written


@dataclass(frozen=True, slots=True)
class Source:
    """A local module as it travels."""

    text: bytes  # its source
    file: str  # where it was, for tracebacks
    package: bool  # whether it has submodules


@dataclass(frozen=True, slots=True)
class Sources(Place):
    """A function of a local file, with its sources."""

    module: str  # the module of the function
    qualname: str  # the name inside it
    sources: Mapping[str, Source]  # of that module and of the local ones that it imports, by name

    def resolve(self) -> Callable[..., Any]:
        """Imports the function from the sources; raises what the modules raise."""
        if not any(isinstance(finder, _Finder) and finder.sources == self.sources for finder in sys.meta_path):
            sys.meta_path.append(_Finder(self.sources))
        return function_in(importlib.import_module(self.module), self.qualname)


def ship(plugin: Bound) -> tuple[bytes, str, str]:
    """Packs a plugin for another machine; returns the bytes, and the distribution and version that they need there.

    Raises where neither name, source nor value can be sent.
    """
    place, distribution, version = place_of(written(plugin.spec.function))
    return pack_at(plugin, place), distribution, version


def place_of(function: Callable[..., Any]) -> tuple[Place, str, str]:
    """Returns what stands for a function on another machine, and what has to be installed there: "" for nothing."""
    reference = find_reference(function)
    if reference is None:
        return value_of(function), "", ""
    if not _is_local(reference.module):
        return reference, *_installed(reference.module)
    return Sources(reference.module, reference.qualname, _closure(reference.module)), "", ""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds modules in sources that came along; asked after what is installed."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self.sources = sources

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        source = self.sources.get(name)
        if source is None:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, origin=source.file, is_package=source.package)
        spec.has_location = True  # gives it __file__
        return spec

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self.sources[fullname].text)

    def is_package(self, fullname: str) -> bool:
        return self.sources[fullname].package

    def exec_module(self, module: ModuleType) -> None:
        source = self.sources[module.__name__]
        exec(compile(source.text, source.file, "exec", dont_inherit=True), vars(module))


def _closure(module: str) -> dict[str, Source]:
    """Returns a local module and the local ones that it imports, wherever it does so."""
    sources: dict[str, Source] = {}
    visited: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in visited or not _is_local(name):
            continue
        visited.add(name)
        source = _source_of(name)
        if source is not None:
            sources[name] = source
            waiting += [name.rpartition(".")[0], *_imported(name, source)]
    return sources


def _imported(name: str, source: Source) -> Iterator[str]:
    package = name if source.package else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # above the top package
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))  # each may be a submodule


def _source_of(name: str) -> Source | None:
    known = sys.modules.get(name)
    spec = getattr(known, "__spec__", None) if known is not None else _spec_of(name)
    file = getattr(known, "__file__", None) or getattr(spec, "origin", None)
    package = spec is not None and spec.submodule_search_locations is not None
    if package and not file:
        return Source(b"", "", True)  # a folder without __init__.py
    if not file or not file.endswith(".py") or not Path(file).is_file():
        return None
    return Source(Path(file).read_bytes(), file, package)


def _spec_of(name: str) -> importlib.machinery.ModuleSpec | None:
    parent = name.rpartition(".")[0]
    if not parent:
        return importlib.machinery.PathFinder.find_spec(name)
    above = _spec_of(parent)
    places = None if above is None else above.submodule_search_locations
    return None if places is None else importlib.machinery.PathFinder.find_spec(name, list(places))


def _is_local(name: str) -> bool:
    top = name.partition(".")[0]
    if not top or top in sys.stdlib_module_names or top in distributions_by_package():
        return False
    source = _source_of(top)
    own = tuple(sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib"))
    return source is not None and not source.file.startswith(own)


def _installed(module: str) -> tuple[str, str]:
    names = distributions_by_package().get(module.partition(".")[0], [])
    return (names[0], metadata.version(names[0])) if names else ("", "")
