"""Measures how long a call in another thread has been importing, by looks at its stack."""

from __future__ import annotations

import sys
import time

_MOST = 120.0  # seconds of one call
_IMPORTING = "<frozen importlib._bootstrap>"  # the file of the frames below which a module is loaded


class ImportTime:
    """The imports of one call, as far as they were seen. `module`: which one, or ""."""

    def __init__(self) -> None:
        self.module = ""
        self.seconds = 0.0
        self._looked = time.monotonic()

    def look(self, thread: int | None) -> float:
        """Returns the seconds since the last look where the thread is importing, at most 120 s in all, and else 0."""
        now, frame, module = time.monotonic(), sys._current_frames().get(thread or 0), ""
        since, self._looked = now - self._looked, now
        while frame is not None:
            if frame.f_code.co_filename == _IMPORTING:  # one that loads, or waits for another thread that does
                module = str(frame.f_locals.get("name") or module or "a module")  # the outermost is what was asked for
            frame = frame.f_back
        if not module or self.seconds >= _MOST:
            return 0.0
        self.module = self.module or module
        self.seconds += since
        return since
