"""The guard of the fast lane: a test in it loads no trainer and reaches no other machine, in no Python that it starts.

An audit hook and a finder raise an error at the place where it happens, and write a line into `broken`, because code
under test may swallow the error. Python imports a module of this
name by itself when it starts; `tests/conftest.py` puts this folder in front of the search path of processes that the
tests start. A process that ignores PYTHONPATH is not watched.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader, MetaPathFinder
    from types import ModuleType

broken: list[str] = []


def _on_this_machine(host: Any) -> bool:
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    return name in (None, "", "localhost", "::1", "0.0.0.0", "::") or str(name).startswith("127.")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        if _on_this_machine(arguments[1][0]):
            return
        what = f"connects to {arguments[1][0]}"
    elif event == "socket.getaddrinfo" and not _on_this_machine(arguments[0]):
        what = f"asks for the address of {arguments[0]!r}"
    else:
        return
    _refuse(what)


def _refuse(what: str) -> NoReturn:
    broken.append(what)
    raise RuntimeError(f"this test {what}, which a test of the fast lane does not; mark it: @pytest.mark.slow")


class _Refused:
    """A loader that loads nothing. No audit hook: `importlib.import_module` raises no event."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        _refuse(f"loads {module.__name__}, and with it the trainer")


class _Trainer:
    """A finder of trl, which is found as always, so that whoever only asks whether it is installed gets an answer."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == "trl" else None
        if spec is not None:
            spec.loader = cast("Loader", _Refused())
        return spec


sys.addaudithook(_watch)
sys.meta_path.insert(0, cast("MetaPathFinder", _Trainer()))
