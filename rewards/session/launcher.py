"""Forks a keeper for each local session, which makes the namespaces and starts their process 1.

The owner of the pool sends the descriptor of a socket for each session; the keeper reads its plan there. When the owner
ends, its sockets close, every session ends, and its control groups are removed. When the launcher is killed, the kernel
kills every keeper, and with it its session. What a keeper and process 1 need is imported before: the session's user may
not see this Python's files.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import socket
import tarfile
import traceback
from typing import Any, NoReturn

from grpo.plugins import kernel
from grpo.plugins.child_process import receive_descriptors
from grpo.rewards.sandbox import cgroup
from grpo.rewards.session import root
from grpo.rewards.session.process_one import serve
from grpo.rewards.session.wire import receive, send

_NAMESPACES = kernel.NEWUSER | kernel.NEWNS | kernel.NEWPID | kernel.NEWIPC | kernel.NEWUTS | kernel.NEWCGROUP
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS)  # the last two: no more namespaces
_PATIENCE = 10  # seconds for sessions whose owner is gone


def main(descriptor: int, owner: int) -> None:
    """Serves until the socket closes; `owner`: the process of the pool."""
    channel = socket.socket(fileno=descriptor)
    os.umask(0o022)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    launcher = os.getpid()
    while True:
        try:
            _, descriptors = receive_descriptors(channel, 1, 1)
        except OSError:
            descriptors = []
        if not descriptors:
            break
        if os.fork() == 0:
            channel.close()
            _keep(socket.socket(fileno=descriptors[0]), launcher)
        os.close(descriptors[0])
    signal.alarm(_PATIENCE)  # its end kills the keepers that are left
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)  # with SIGCHLD ignored, until the last one has ended
    cgroup.reap(owner)


def _keep(control: socket.socket, launcher: int) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, files = receive(control)
        plan: dict[str, Any] = message
        for entry in plan["cgroups"]:
            _write(entry, "0")
        try:
            # What root shows may lie where the session's user cannot look; others may take copies only below.
            shown = root.shown(plan) if os.geteuid() == 0 else None
            _enter(plan, launcher)
            first = os.fork()
            if first == 0:
                _become_first(control, plan, shown, files[0] if files else -1)
        except OSError as error:
            send(control, _answer(error))
            os._exit(1)
        os.waitpid(first, 0)  # with the control socket open: its end is seen when every process is gone
    except ConnectionError:
        pass  # the owner ended before it had sent a plan
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _enter(plan: dict[str, Any], launcher: int) -> None:
    user, group = plan["user"], plan["group"]
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # else the maps below belong to root
    kernel.unshare(_NAMESPACES | (0 if plan["network"] else kernel.NEWNET))
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # after the last change of rights, which undoes it
    if os.getppid() != launcher:
        os._exit(0)
    maps = {"setgroups": "deny", "uid_map": f"{root.USER} {user} 1", "gid_map": f"{root.USER} {group} 1"}
    for name, text in maps.items():
        _write(f"/proc/self/{name}", text)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _become_first(control: socket.socket, plan: dict[str, Any], shown: root.Shown | None, files: int) -> NoReturn:
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
        processes = root.build(plan, shown or root.shown(plan))
        socket.sethostname("session")
        if not plan["network"]:
            root.raise_loopback()
        serve(control, plan, processes, files)
    except (OSError, tarfile.TarError) as error:
        with contextlib.suppress(OSError):
            send(control, _answer(error))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _answer(error: Exception) -> dict[str, Any]:
    return {"error": f"{error}", "refused": isinstance(error, OSError) and error.errno in _REFUSALS}
