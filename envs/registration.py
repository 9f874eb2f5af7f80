"""Registers environments with gymnasium without importing gymnasium.

Importing it costs a third of a second. So a finder stands first in `sys.meta_path` and answers for the one name
`gymnasium`: it asks the finders behind it for the real module spec, and has that spec's loader make the registrations
once the module has run. The finder stays, since a module may be imported again; an id that is registered is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_TARGET = "gymnasium"
_entry_points: dict[str, str] = {}


def register_when_imported(env_id: str, *, entry_point: str) -> None:
    """Registers an environment now if gymnasium is imported, else when it is.

    `env_id`: the id for `gymnasium.make`, for example "grpo/gsm8k-v1". `entry_point`: "module:factory", imported when
    an environment is made.
    """
    _entry_points[env_id] = entry_point
    if _TARGET in sys.modules:
        _register_all()
    elif not any(isinstance(finder, _GymnasiumFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GymnasiumFinder())


def _register_all() -> None:
    from gymnasium.envs.registration import register, registry

    for env_id, entry_point in _entry_points.items():
        if env_id not in registry:
            register(env_id, entry_point=entry_point)


class _GymnasiumFinder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _TARGET:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(fullname, path, target) if find_spec else None
            if spec is not None:
                _register_after(spec)
                return spec
        return None


def _register_after(spec: ModuleSpec) -> None:
    """Shadows `exec_module` on the spec's own loader until its next call, which is the import of gymnasium."""
    loader = spec.loader
    if loader is None:
        return

    def exec_module(module: ModuleType) -> None:
        del loader.__dict__["exec_module"]
        loader.exec_module(module)
        _register_all()

    loader.__dict__["exec_module"] = exec_module
