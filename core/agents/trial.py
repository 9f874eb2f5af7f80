"""Tries whether this machine gives an unprivileged process namespaces of its own."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from pathlib import Path

from grpo.core.agents import kernel
from grpo.core.agents.folder import Folder
from grpo.plugins.child_process import ChildProcess, receive_message, send_message


@functools.cache
def namespaces_refused() -> str:
    """Returns why agents cannot have namespaces here, or "". Tried once."""
    if not kernel.LINUX:
        return f"{sys.platform} has none"
    with tempfile.TemporaryDirectory(prefix="grpo-agents-") as path:
        folder = Folder(Path(path), namespaces=True)
        child = ChildProcess(__name__, [folder.places], environment={"PATH": os.defpath})
        try:
            return receive_message(child.channel).decode()
        except ConnectionError:
            return "the process that tried it died"
        finally:
            child.end(5.0)


def main(descriptor: int, places: list[tuple[str, str]]) -> None:
    """Enters namespaces, mounts the places and answers with what is refused."""
    import socket

    answer = ""
    try:
        kernel.enter_namespaces()
        child = os.fork()
        if child == 0:
            try:
                kernel.arrange_mounts(places, ())
            except OSError as error:
                os._exit(min(error.errno or 1, 255))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = os.strerror(code) if code else ""
    except OSError as error:
        answer = str(error.strerror)
    send_message(socket.socket(fileno=descriptor), answer.encode())
