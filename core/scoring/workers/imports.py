"""Times the imports that a plugin makes inside its calls, in the thread that makes them.

A finder in `sys.meta_path` that finds nothing sees every load begin; loads end where the outermost import statement or
`import_module` ends, both of which are wrapped.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


class ImportWatch:
    """Watches the imports of the thread that made it. `longest`: the slowest import and its seconds."""

    def __init__(self, begun: Callable[[str], None], ended: Callable[[], None]) -> None:
        self.seconds = 0.0
        self.longest = ("", 0.0)
        self._begun, self._ended = begun, ended
        self._thread = threading.get_ident()
        self._inside = False
        self._loading: tuple[str, float] | None = None

    def install(self) -> None:
        builtins.__import__ = self._watched(builtins.__import__)
        importlib.import_module = self._watched(importlib.import_module)
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Ends watching; leaves alone what others have put in the place of the watched functions since."""
        for module, name in ((builtins, "__import__"), (importlib, "import_module")):
            function = getattr(module, name)
            if getattr(function, "watch", None) is self:
                setattr(module, name, function.__wrapped__)
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Finds nothing, and notes that a module is not loaded yet."""
        if self._inside and self._loading is None and threading.get_ident() == self._thread:
            self._loading = (name, time.perf_counter())
            self._begun(name)

    def forget(self) -> None:
        """Forgets what was counted, before the next call."""
        self.seconds, self.longest = 0.0, ("", 0.0)

    def _watched(self, load: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(load)
        def watched(*arguments: Any, **keywords: Any) -> Any:
            if self._inside or threading.get_ident() != self._thread:
                return load(*arguments, **keywords)
            self._inside = True
            try:
                return load(*arguments, **keywords)
            finally:
                self._inside = False
                if self._loading is not None:
                    (name, started), self._loading = self._loading, None
                    seconds = time.perf_counter() - started
                    self.seconds += seconds
                    self.longest = max(self.longest, (name, seconds), key=lambda imported: imported[1])
                    self._ended()

        watched.watch = self  # type: ignore[attr-defined]
        return watched
