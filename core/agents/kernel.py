"""Makes the Linux calls that Python does not offer and that one agent's processes need to be kept together."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

LINUX = sys.platform == "linux"
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_PDEATHSIG, _CAPBSET_DROP, _SUBREAPER = 1, 24, 36
_MOUNT_SETATTR, _ATTR_RDONLY, _AT_RECURSIVE = 442, 1, 0x8000
_SHARED_MEMORY = "/dev/shm"
_MACHINE = [f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")]
"""What of /proc is the machine's, and root may write without any capability."""
_CAPABILITIES_V3 = struct.pack("=Ii", 0x20080522, 0)

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def die_with_parent() -> None:
    """Has this process killed when the thread that started it ends, whatever the reason."""
    if LINUX:
        _checked("prctl", _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends."""
    if LINUX:
        _checked("prctl", _libc.prctl(_SUBREAPER, 1, 0, 0, 0))


def enter_namespaces() -> None:
    """Gives this process a user namespace of its own, with its own user in it, and its next child pid 1 of a new one.

    Raises:
        OSError: this machine does not allow it.
    """
    user, group = os.getuid(), os.getgid()
    _checked("unshare", _libc.unshare(_NEWUSER | _NEWPID | _NEWIPC))
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
    _checked("unshare", _libc.unshare(_NEWNS))
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    for source, target in kept:
        _mount(source, target, "", _MS_BIND | _MS_REC)
    _set_attributes("/", _AT_RECURSIVE, add=_ATTR_RDONLY)
    folders = [(os.open(source, os.O_PATH | os.O_DIRECTORY), target) for source, target in places]
    for folder, target in folders:  # by descriptor: one place may hide the folder of the next
        _mount(f"/proc/self/fd/{folder}", target, "", _MS_BIND | _MS_REC)
        os.close(folder)
        _set_attributes(target, 0, remove=_ATTR_RDONLY)  # of the place alone: what is kept below it stays read-only
    flags = _MS_NOSUID | _MS_NODEV
    if Path(_SHARED_MEMORY).is_dir():
        _mount("tmpfs", _SHARED_MEMORY, "tmpfs", flags, "mode=1777")
    with contextlib.suppress(OSError):  # in a container that hides parts of it: processes have other numbers there
        _mount("proc", "/proc", "proc", flags | _MS_NOEXEC)
        for path in filter(os.path.exists, _MACHINE):
            _mount(path, path, "", _MS_BIND | _MS_REC)
            _set_attributes(path, _AT_RECURSIVE, add=_ATTR_RDONLY)


def drop_capabilities() -> None:
    """Gives up what this process may do in its namespaces, and what a program that it starts could gain."""
    capability = 0
    while _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0) == 0:  # until the last one that this kernel has
        capability += 1
    _checked("capset", _libc.capset(_CAPABILITIES_V3, bytes(24)))


def children() -> list[int]:
    """Returns the direct children of this process."""
    own, found = str(os.getpid()), []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):  # it has just ended
                if (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1] == own:
                    found.append(int(folder.name))
    return found


def _set_attributes(path: str, flags: int, *, add: int = 0, remove: int = 0) -> None:
    """Changes the attributes of a mount, or of all below it (Linux 5.12)."""
    attributes = struct.pack("=QQQQ", add, remove, 0, 0)
    arguments = (-100, ctypes.c_char_p(os.fsencode(path)), flags, attributes, ctypes.c_size_t(len(attributes)))
    _checked(f"mount_setattr {path}", int(_syscall(ctypes.c_long(_MOUNT_SETATTR), *arguments)))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    arguments = [ctypes.c_char_p(os.fsencode(text)) for text in (source, target, kind)]
    result = _libc.mount(*arguments, ctypes.c_ulong(flags), ctypes.c_char_p(data.encode()))
    _checked(f"mount {target}", result)


def _checked(name: str, result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
