"""Closes a session's sockets in forked children, so that the session ends with the process that owns it."""

from __future__ import annotations

import os
import socket
import weakref

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def own(end: socket.socket) -> None:
    """Has the copies of a socket closed in children that are forked from now on."""
    _sockets.add(end)


def _forget() -> None:
    for each in list(_sockets):
        descriptor = each.detach()  # `close` would wait for the files that were made of a socket
        if descriptor >= 0:
            os.close(descriptor)


os.register_at_fork(after_in_child=_forget)
