"""Reads the output of a command up to a limit, until the command ends or its time is up."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Sequence

_READ = 1 << 16


class Collector:
    """Keeps the first `most` bytes of two streams, which must not block, and reads the rest, so that nobody waits."""

    def __init__(self, streams: Sequence[int], most: int) -> None:
        self._most = most
        self.texts = [bytearray() for _ in streams]
        self.omitted = 0
        self._selector = selectors.DefaultSelector()
        for number, stream in enumerate(streams):
            self._selector.register(stream, selectors.EVENT_READ, number)

    def until(self, ended: int, seconds: float | None, on_end: Callable[[], bool]) -> bool:
        """Reads until `on_end`, called when a descriptor can be read, returns True; False when the time is up first."""
        self._selector.register(ended, selectors.EVENT_READ, -1)
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                for key, _ in self._selector.select(left):
                    if key.data >= 0:
                        self._take(key.fd, key.data)
                    elif on_end():
                        return True
        finally:
            self._selector.unregister(ended)

    def rest(self) -> None:
        """Takes what the streams hold now; what other processes write later is not waited for."""
        for key in list(self._selector.get_map().values()):
            for _ in range(64):  # what a pipe holds, and not what a process that goes on writing adds
                if not self._take(key.fd, key.data):
                    break
        self._selector.close()

    def _take(self, stream: int, number: int) -> bool:
        """Takes one piece; returns whether there may be more."""
        try:
            piece = os.read(stream, _READ)
        except BlockingIOError:
            return False
        if not piece:
            self._selector.unregister(stream)
            return False
        room = max(0, self._most - len(self.texts[number]))
        self.texts[number] += piece[:room]
        self.omitted += max(0, len(piece) - room)
        return True
