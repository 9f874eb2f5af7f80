"""Keeps one agent's processes together: namespaces, mounts and rights of Linux, by the calls of `plugins.kernel`."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from grpo.plugins import kernel

LINUX = kernel.LINUX
_SHARED_MEMORY = "/dev/shm"
_MACHINE = [f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")]
"""What of /proc is the machine's, and root may write without any capability."""


def die_with_parent() -> None:
    """Has this process killed when the thread that started it ends, whatever the reason."""
    if LINUX:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends."""
    if LINUX:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)


def enter_namespaces() -> None:
    """Gives this process a user namespace of its own, with its own user in it, and its next child pid 1 of a new one.

    Raises:
        OSError: this machine does not allow it.
    """
    user, group = os.getuid(), os.getgid()
    kernel.unshare(kernel.NEWUSER | kernel.NEWPID | kernel.NEWIPC)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def arrange_mounts(places: Sequence[tuple[str, str]], kept: Sequence[tuple[str, str]]) -> None:
    """Puts folders of an episode where every episode has them, and makes all else that is mounted read-only.

    Called by the first process of the namespaces.

    Args:
        places: what to mount, and where: (folder of the episode, path).
        kept: what is mounted into them first and stays in sight: (path of the machine, path in the episode's folder).

    Raises:
        OSError: this machine does not allow it.
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
        kernel.set_mount_attributes(
            target, remove=kernel.ATTR_RDONLY
        )  # of the place alone: what is kept below it stays read-only
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


def children() -> list[int]:
    """Returns the direct children of this process."""
    own, processes = str(os.getpid()), []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):  # it has just ended
                if (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1] == own:
                    processes.append(int(folder.name))
    return processes
