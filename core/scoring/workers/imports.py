"""Times the imports that a plugin makes inside its calls, in the thread that makes them.

A finder in `sys.meta_path` sees them begin; they end in the wrapped `__import__` or `import_module`.
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
    """Watches the imports of the thread that made it; `seconds` is what they took since the last call began."""

    def __init__(self, begun: Callable[[str], None], ended: Callable[[], None]) -> None:
        self.seconds = 0.0
        self._begun, self._ended = begun, ended
        self._thread = threading.get_ident()
        self._inside = False
        self._loading: float | None = None  # since when

    def install(self) -> None:
        builtins.__import__ = self._watched(builtins.__import__)
        importlib.import_module = self._watched(importlib.import_module)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Finds nothing, and notes that a module is not loaded yet."""
        if self._inside and self._loading is None and threading.get_ident() == self._thread:
            self._loading = time.perf_counter()
            self._begun(name)

    def forget(self) -> None:
        """Forgets what was counted, before the next call."""
        self.seconds = 0.0

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
                    self.seconds += time.perf_counter() - self._loading
                    self._loading = None
                    self._ended()

        return watched
