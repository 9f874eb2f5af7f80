"""Sends values and descriptors over the sockets of a local session: one packet each, whatever the size of the value."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

from grpo.plugins.child_process import receive_descriptors

_MOST_DESCRIPTORS = 64
_SMALL = 32768


def send(channel: socket.socket, value: object, descriptors: Sequence[int] = ()) -> None:
    """Sends a value that JSON holds, with descriptors. Raises OSError where the other end is gone."""
    data = json.dumps(value).encode()
    if len(data) <= _SMALL:
        socket.send_fds(channel, [b"v" + data], descriptors)
        return
    body = os.memfd_create("grpo-session", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(body, view) :]
        socket.send_fds(channel, [b"f"], [body, *descriptors])
    finally:
        os.close(body)


def receive(channel: socket.socket) -> tuple[Any, list[int]]:
    """Returns the next value and its descriptors. Raises ConnectionError; BlockingIOError, TimeoutError: none yet."""
    data, descriptors = receive_descriptors(channel, _SMALL + 1, _MOST_DESCRIPTORS)
    if not data:
        raise ConnectionError("the other end is gone")
    if data[:1] == b"f":
        body = descriptors.pop(0)
        data = b"f" + os.pread(body, os.fstat(body).st_size, 0)
        os.close(body)
    return json.loads(data[1:]), descriptors
