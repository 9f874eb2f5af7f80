"""Wraps Linux calls for isolation through ctypes, with the standard library only; failures are `OSError`s."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_NOATIME = 1, 2, 4, 8, 32, 1024
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 8, 24, 36
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_CAP_AMBIENT = 38, 22, 47
_SECCOMP_MODE_FILTER = 2
_AMBIENT_RAISE = 2
_OWN_CAPABILITIES = struct.pack("=Ii", 0x20080522, 0)
_NO_CAPABILITIES = bytes(24)
LAST_CAPABILITY = 63

LINUX = sys.platform == "linux"
MACHINE = os.uname().machine
# These calls have one number on every architecture; only pivot_root predates that rule.
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_CLOSE_RANGE = 436
_AT_RECURSIVE = 0x8000
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(MACHINE, -1)

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_fork = ctypes.PyDLL(None, use_errno=True).fork  # keeps the interpreter's lock, which the child then holds
_syscall.restype = ctypes.c_long
# What every program calls has typed arguments: to convert them costs fewer pages of the forked process.
_prctl = _libc.prctl if LINUX else _libc.getpid  # so that other systems import this module
_prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
_call_with_numbers = _libc["syscall"]
_call_with_numbers.argtypes = (ctypes.c_long, *(ctypes.c_ulong,) * 3)
_capset = _libc.capset if LINUX else _libc["getpid"]
_capset.argtypes = (ctypes.c_char_p,) * 2


def _call(name: str, number: int, *arguments: object) -> int:
    return _checked(name, int(_syscall(ctypes.c_long(number), *arguments)))


def _checked(name: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


class FilterProgram(ctypes.Structure):
    """A seccomp filter as `install` takes it: the number of its instructions, and these (`struct sock_fprog`)."""

    _fields_ = (("count", ctypes.c_ushort), ("code", ctypes.c_char_p))


def fork() -> int:
    """Forks, and returns 0 in the child, without the handlers of Python and its modules, which cost a job a third.

    Right only in a process of one thread, where no other can hold a lock. `random` is not seeded anew.
    """
    return _checked("fork", int(_fork()))


def unshare(flags: int) -> None:
    """Moves the caller into new namespaces (NEWPID: its next children)."""
    _checked("unshare", _libc.unshare(flags))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    arguments = [ctypes.c_char_p(os.fsencode(text)) for text in (source, target, kind)]
    _checked(f"mount {target}", _libc.mount(*arguments, ctypes.c_ulong(flags), ctypes.c_char_p(data.encode())))


def unmount(target: str) -> None:
    """Takes a mount out of the tree; it ends when nothing uses it."""
    _checked(f"umount {target}", _libc.umount2(ctypes.c_char_p(target.encode()), MNT_DETACH))


def read_only_copy(path: str, *, recursive: bool = False) -> int:
    """Returns a descriptor of a detached, read-only mount (Linux 5.12), with `recursive` of all mounts below."""
    return _copy(path, _AT_RECURSIVE if recursive else 0, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)


def device_copy(path: str) -> int:
    """Returns a descriptor of a detached mount of one device file, which can be written to but not touched."""
    return _copy(path, 0, ATTR_RDONLY | ATTR_NOSUID)


def _copy(path: str, below: int, attributes: int) -> int:
    clone, empty_path = 1, 0x1000
    where = ctypes.c_char_p(path.encode())
    tree = _call(f"open_tree {path}", _OPEN_TREE, -100, where, clone | os.O_CLOEXEC | below)
    _mount_setattr(path, tree, b"", empty_path | below, attributes, 0)
    return tree


def detached(kind: str, attributes: int) -> int:
    """Returns a descriptor of a new file system that is mounted nowhere (Linux 5.2)."""
    cloexec, create = 1, 6
    context = _call(f"fsopen {kind}", _FSOPEN, ctypes.c_char_p(kind.encode()), cloexec)
    try:
        _call(f"fsconfig {kind}", _FSCONFIG, context, create, None, None, 0)
        return _call(f"fsmount {kind}", _FSMOUNT, context, cloexec, attributes)
    finally:
        os.close(context)


def _mount_setattr(about: str, folder: int, path: bytes, flags: int, add: int, remove: int) -> None:
    attributes = struct.pack("=QQQQ", add, remove, 0, 0)
    name, size = ctypes.c_char_p(path), ctypes.c_size_t(len(attributes))
    _call(f"mount_setattr {about}", _MOUNT_SETATTR, folder, name, flags, attributes, size)


def set_mount_attributes(path: str, *, below: bool = False, add: int = 0, remove: int = 0) -> None:
    """Changes the attributes of a mount, or of all that is mounted below it, too (Linux 5.12)."""
    _mount_setattr(path, -100, os.fsencode(path), _AT_RECURSIVE if below else 0, add, remove)


def attach(tree: int, target: str) -> None:
    """Puts a detached mount into the tree and closes its descriptor."""
    from_empty_path = 4
    where = ctypes.c_char_p(target.encode())
    _call(f"move_mount {target}", _MOVE_MOUNT, tree, ctypes.c_char_p(b""), -100, where, from_empty_path)
    os.close(tree)


def put(tree: int, path: str) -> None:
    """Creates the file or folder that a detached mount covers, and attaches the mount."""
    if os.path.isdir(f"/proc/self/fd/{tree}"):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    attach(tree, path)


def pivot_root(folder: str) -> None:
    """Makes a folder, which must be a mount, the root of the file system, and drops the old one."""
    os.chdir(folder)
    _call("pivot_root", _PIVOT_ROOT, ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))
    _checked("umount old root", _libc.umount2(ctypes.c_char_p(b"."), MNT_DETACH))
    os.chdir("/")


def prctl(option: int, first: int = 0, second: int = 0) -> int:
    """Sets an attribute of the process; returns what the kernel answers."""
    return _checked("prctl", int(_prctl(option, first, second, 0, 0)))


def die_with_parent() -> None:
    """Has this process killed when the thread that started it ends, whatever the reason; nothing outside of Linux."""
    if LINUX:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends; nothing outside of Linux."""
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Returns the direct children of this process; none outside of Linux."""
    own, processes = str(os.getpid()), []
    for name in filter(str.isdecimal, os.listdir("/proc") if LINUX else ()):
        try:
            with open(f"/proc/{name}/stat", errors="replace") as stat:
                if stat.read().rpartition(")")[2].split()[1] == own:
                    processes.append(int(name))
        except (OSError, IndexError):  # it has just ended
            continue
    return processes


def set_capabilities(mask: int) -> None:
    """Makes the effective, permitted and inheritable capabilities the bits of `mask`."""
    low, high = mask & 0xFFFFFFFF, mask >> 32
    sets = struct.pack("=6I", low, low, low, high, high, high) if mask else _NO_CAPABILITIES
    _checked("capset", int(_capset(_OWN_CAPABILITIES, sets)))


def set_effective_capabilities(mask: int) -> None:
    """Changes which capabilities are in force; the process keeps the right to change them again."""
    full = 2**32 - 1
    sets = struct.pack("=6I", mask & full, full, 0, mask >> 32 & full, full, 0)
    _checked("capset", int(_capset(_OWN_CAPABILITIES, sets)))


def keep_capabilities_over_exec(mask: int) -> None:
    """Raises capabilities into the ambient set, so that the next program has them whatever its user."""
    set_capabilities(mask)
    for number in range(LAST_CAPABILITY):
        if mask >> number & 1:
            prctl(PR_CAP_AMBIENT, _AMBIENT_RAISE, number)


def drop_bounding_set() -> None:
    """Takes every capability out of what a later program could gain."""
    for number in range(LAST_CAPABILITY):
        try:
            prctl(PR_CAPBSET_DROP, number)
        except OSError:
            break  # past the last capability that this kernel has


def close_from(first: int) -> None:
    _checked("close_range", int(_call_with_numbers(_CLOSE_RANGE, first, 0xFFFFFFFF, 0)))


def install(program: FilterProgram | None) -> None:
    """Installs a seccomp filter, if there is one, for this process and its children, for good."""
    if program is not None:
        prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


def landlock_version() -> int:
    """Returns the version of Landlock, or 0 without it."""
    try:
        return _call("landlock", _LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    except OSError:
        return 0


def landlock_ruleset(files: int, network: int, scopes: int) -> int:
    """Returns a descriptor of a Landlock ruleset that handles these accesses."""
    version = landlock_version()
    fields = struct.pack("=QQQ", files, network, scopes)
    size = 8 if version < 4 else 16 if version < 6 else 24
    return _call("landlock_create_ruleset", _LANDLOCK_CREATE, fields[:size], ctypes.c_size_t(size), 0)


def landlock_allow(ruleset: int, folder: int, accesses: int) -> None:
    """Allows accesses beneath a folder, given by a descriptor."""
    _call("landlock_add_rule", _LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", accesses, folder), 0)


def landlock_restrict(ruleset: int) -> None:
    """Applies a ruleset to this process and its children, for good."""
    _checked("landlock_restrict_self", int(_call_with_numbers(_LANDLOCK_RESTRICT, ruleset, 0, 0)))
