"""Registers environments with gymnasium without importing gymnasium.

Importing it costs a third of a second. So a finder stands first in `sys.meta_path` and answers for the one name
`gymnasium`: it asks the finders behind it for the real module spec, and has that spec's loader make the registrations
once the module has run. The finder stays, since a module may be imported again; an id that is registered is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def register_when_imported(places: Mapping[str, str]) -> None:
    """Registers environments, id to "module:factory", now if gymnasium is imported, else when it is."""
    if "gymnasium" in sys.modules:
        _register(places)
    elif not any(isinstance(finder, _GymnasiumFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GymnasiumFinder(places))


def _register(places: Mapping[str, str]) -> None:
    from gymnasium.envs.registration import register, registry

    for env_id in places.keys() - registry.keys():
        register(env_id, entry_point=places[env_id])


class _GymnasiumFinder:
    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        specs = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, specs), None)
        loader = spec.loader if spec else None
        if loader is None:
            return spec

        def exec_module(module: ModuleType) -> None:
            del loader.__dict__["exec_module"]  # the next call is the loader's own again
            loader.exec_module(module)
            _register(self._places)

        loader.__dict__["exec_module"] = exec_module
        return spec
