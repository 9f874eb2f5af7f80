"""Starts one MCP server in a process of its own and ends every process that the server started.

Theory of operation. The guard's socket closes when the episode is over, and also when the process that wants the server
is killed. The server's standard input closes with it, on which a server ends by itself; after a moment the guard kills
whatever is left. On Linux it is the parent of every orphaned descendant, so that none gets away. If the guard itself is
killed, the kernel kills the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence

from grpo.plugins import kernel
from grpo.plugins.child_process import send_message

_GRACE = 2.0  # seconds for a server whose standard input is closed
_GIVE_UP = 10.0  # seconds for processes that outrun being killed


def main(
    control: int,
    argv: Sequence[str],
    environment: Mapping[str, str],
    home: str,
    folder: str,
    streams: Sequence[int],
) -> None:
    """Starts a server, says over the socket `control` whether that worked, and ends it when the socket closes.

    `environment`: of the server. `home`: the folder of the episode, removed at the end. `folder`: the working
    directory. `streams`: descriptors of its standard input, output and error output.
    """
    channel = socket.socket(fileno=control)
    kernel.adopt_orphans()
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def begin() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        kernel.die_with_parent()

    try:
        server = subprocess.Popen(
            argv,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=begin,
        )
    except (OSError, subprocess.SubprocessError) as error:
        send_message(channel, json.dumps(f"it cannot be started: {error}").encode())
        return
    finally:
        for stream in streams:
            os.close(stream)
    with contextlib.suppress(OSError):
        send_message(channel, json.dumps("").encode())
    ended = False
    while not ended:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            os.read(wake, 512)
        ended = control in ready or server.poll() is not None
        _reap(server.pid)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(_GRACE)
    _end_all(server)
    shutil.rmtree(home, ignore_errors=True)


def _reap(server: int) -> None:
    """Reaps orphans, but not the server, whose end `Popen` asks for."""
    for child in kernel.children():
        if child != server:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def _end_all(server: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + _GIVE_UP
    while time.monotonic() < deadline:
        server.poll()
        left = [child for child in kernel.children() if child != server.pid or server.returncode is None]
        for child in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        _reap(server.pid)
        if not left and server.returncode is not None:
            return
        time.sleep(0.002)
