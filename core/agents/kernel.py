"""Confines an agent's processes by Linux namespaces, mounts and dropped rights, and kills those that remain."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from grpo.core.agents.folder import Folder
from grpo.plugins import kernel
from grpo.plugins.child_process import ChildProcess, receive_message, send_message

_GIVE_UP = 10.0  # seconds for processes that outrun being killed
_SHARED_MEMORY = "/dev/shm"
# What of /proc is the machine's, and root may write without any capability.
_MACHINE = [f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")]


def enter_namespaces() -> None:
    """Gives this process a user namespace with its own user, and its next child pid 1 of a new one. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    kernel.unshare(kernel.NEWUSER | kernel.NEWPID | kernel.NEWIPC)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def arrange_mounts(places: Sequence[tuple[str, str]], kept: Sequence[tuple[str, str]]) -> None:
    """Mounts folders of an episode at the paths of every episode, and makes all other mounts read-only. Raises OSError.

    Called by the first process of the namespaces. `places`: (folder of the episode, path to mount it at). `kept`: (path
    of the machine, path in the episode's folder), mounted first, so that it stays visible.
    """
    kernel.unshare(kernel.NEWNS)
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    for source, target in kept:
        kernel.mount(source, target, "", kernel.MS_BIND | kernel.MS_REC)
    kernel.set_mount_attributes("/", below=True, add=kernel.ATTR_RDONLY)
    folders = [(os.open(source, os.O_PATH | os.O_DIRECTORY), target) for source, target in places]
    for folder, target in folders:  # by descriptor: one place may hide the folder of the next
        kernel.mount(f"/proc/self/fd/{folder}", target, "", kernel.MS_BIND | kernel.MS_REC)
        os.close(folder)
        # Of the place alone: what is kept below it stays read-only.
        kernel.set_mount_attributes(target, remove=kernel.ATTR_RDONLY)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    if Path(_SHARED_MEMORY).is_dir():
        kernel.mount("tmpfs", _SHARED_MEMORY, "tmpfs", flags, "mode=1777")
    with contextlib.suppress(OSError):  # in a container that hides parts of it: processes have other numbers there
        kernel.mount("proc", "/proc", "proc", flags | kernel.MS_NOEXEC)
        for path in filter(os.path.exists, _MACHINE):
            kernel.mount(path, path, "", kernel.MS_BIND | kernel.MS_REC)
            kernel.set_mount_attributes(path, below=True, add=kernel.ATTR_RDONLY)


def drop_capabilities() -> None:
    """Gives up what this process may do in its namespaces, and what a program that it starts could gain."""
    kernel.drop_bounding_set()
    kernel.set_capabilities(0)


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


def main(descriptor: int, places: Sequence[tuple[str, str]]) -> None:
    """Enters namespaces and mounts in a process of its own; answers with the reason of a refusal, or with nothing."""
    answer = ""
    try:
        enter_namespaces()
        child = os.fork()
        if child == 0:
            try:
                arrange_mounts(places, ())
            except OSError as error:
                os._exit(min(error.errno or 1, 255))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = os.strerror(code) if code else ""
    except OSError as error:
        answer = str(error.strerror)
    send_message(socket.socket(fileno=descriptor), answer.encode())


def end_by_key(key: str) -> None:
    """Ends the processes of an agent whose supervisor was killed: every one whose environment has its episode's key."""
    deadline = time.monotonic() + _GIVE_UP
    while kernel.LINUX and (left := _with_key(key.encode())) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def _with_key(key: bytes) -> list[int]:
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and folder.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                if b"=" + key + b"\0" in (folder / "environ").read_bytes():
                    pids.append(int(folder.name))
    return pids
