"""Speeds up what torch, transformers and TRL look up while they load; releases that do it otherwise load as before."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

IMPORTS = "transformers.utils.import_utils"

_NAME = re.compile(r"^Name: *(\S+)", re.MULTILINE)


@contextmanager
def faster_lookups() -> Iterator[None]:
    """Replaces three slow look-ups while the block runs; the last replacement stays, in the module of transformers.

    - `importlib.metadata.packages_distributions`, which transformers and TRL each call: it takes every installed file
      for a path object, and parses whole descriptions for a name.
    - `inspect.getmodule` of a frame, with which torch records where its operators are made: it resolves the paths of
      all modules, though the frame's own globals tell.
    - The scan of its models by transformers (`_scan_once`).
    """
    named, placed = importlib.metadata.packages_distributions, inspect.getmodule
    finder = _Finder()
    importlib.metadata.packages_distributions = distributions_by_package
    inspect.getmodule = partial(_module_of, placed)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        inspect.getmodule = placed
        importlib.metadata.packages_distributions = named


@functools.cache
def distributions_by_package() -> dict[str, list[str]]:
    """Returns the distributions of each top-level module or package, compiled ones too (also before Python 3.12)."""
    names: dict[str, list[str]] = defaultdict(list)
    for distribution in importlib.metadata.distributions():
        description = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        match = _NAME.search(description)
        name = match[1] if match else distribution.metadata["Name"]
        declared = (distribution.read_text("top_level.txt") or "").split()
        for package in declared or _installed(distribution):
            names[package].append(name)
    return dict(names)


def _installed(distribution: importlib.metadata.Distribution) -> set[str]:
    record = distribution.read_text("RECORD")
    files = map(str, distribution.files or ()) if record is None else record.splitlines()
    tops = {(top, bool(rest)) for top, _, rest in (file.strip('"').partition(",")[0].partition("/") for file in files)}
    names = (top if inside else inspect.getmodulename(top) for top, inside in tops)
    return {name for name in names if name and "." not in name}


def _module_of(
    otherwise: Callable[[Any, str | None], ModuleType | None], thing: Any, _filename: str | None = None
) -> ModuleType | None:
    if inspect.isframe(thing):
        module = sys.modules.get(thing.f_globals.get("__name__", ""))
        if module is not None and vars(module) is thing.f_globals:
            return module
    return otherwise(thing, _filename)


class _Finder:
    """Makes `_scan_once` change the module IMPORTS once it is loaded, before transformers uses it."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == IMPORTS else None
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            load(module)
            _scan_once(module)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


def _scan_once(module: ModuleType) -> None:
    """Makes transformers read the 3,000 files of its models once: its own cache holds 128 of the 500 folders."""
    scan: Any = getattr(module, "create_import_structure_from_path", None)
    names: Any = getattr(module, "fetch__all__", None)
    if hasattr(scan, "cache_info") and hasattr(scan, "__wrapped__"):
        module.create_import_structure_from_path = functools.cache(scan.__wrapped__)  # type: ignore[attr-defined]
    if names is not None:
        module.fetch__all__ = _from_last(names)  # type: ignore[attr-defined]


def _from_last(names: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    @functools.wraps(names)
    def shorter(content: str) -> list[str]:
        return names(content[content.rfind("\n__all__") + 1 :])

    return shorter
