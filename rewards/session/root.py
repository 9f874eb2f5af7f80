"""Builds the root of a local session: an empty memory file system that shows the machine's programs read-only.

Everything else in it belongs to the session: any folder but those of the system may be written, and its size is the
limit of the session's files. A task may be graded where it was solved, so nothing that the system's programs read when
they start can be replaced: system folders are mounts and no links, which a program could move away. Runs as process 1
of the session's namespaces and imports the standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from grpo.plugins import kernel

PLACE = "/tmp"
USER = 1000
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_FOLDERS = ("/dev/shm", "/etc", "/mnt", "/opt", "/proc", "/root", "/run", "/srv", "/tmp", "/var/tmp", "/var/log")
_OPEN = ("/dev/shm", "/tmp", "/var/tmp")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "inputrc", "maven"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "login.defs", "magic", "mime.types", "os-release"),
    *("perl", "pki", "profile", "protocols", "services", "shells", "ssl", "terminfo", "timezone"),
    *("bash.bashrc", "environment.d", "lsb-release", "redhat-release", "alpine-release", "nsswitch.conf"),
)
_SETTINGS_OF = ("java", "python3")
"""What of /etc is shown: settings of programs, and nothing in which keys or accounts are kept; and how the names of
others begin, one for each version."""
_FIXED = ("/dev", "/etc")
"""Folders of the session that it may write to, but not move: programs trust what is mounted in them."""
_PRELOAD = "/etc/ld.so.preload"
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_NETWORK = ("resolv.conf", "hosts", "gai.conf")


Trees = list[tuple[int, str]]


class Shown(NamedTuple):
    """What of the machine a session sees."""

    trees: Trees  # (descriptor of a detached mount, path)
    links: list[tuple[str, str]]  # (what a link points to, path)
    covered: list[str]  # paths at which nothing is seen, for all that the trees hold there
    again: Trees  # like `trees`, of what is seen at those paths nevertheless


def shown(plan: dict[str, Any]) -> Shown:
    """Takes copies of what of the machine a session sees. Raises OSError: not allowed, or a path is out of reach."""
    paths, links = system_paths(_NETWORK if plan["network"] else ())
    # A system folder that is a link is shown as what it leads to.
    firm = [path for _, path in links if path in SYSTEM and os.path.isdir(path)]
    links = [link for link in links if link[1] not in firm]
    paths += firm
    trees = [(kernel.read_only_copy(path, recursive=True), path) for path in paths]
    trees += [(kernel.read_only_copy(path, recursive=True), path) for path in outermost(plan["shared"])]
    trees += [(kernel.device_copy(f"/dev/{name}"), f"/dev/{name}") for name in _DEVICES]
    covered = hidden_places(plan["hidden"], [*plan["shared"], *SYSTEM])
    within = [path for path in map(os.path.normpath, plan["shared"]) if any(below(path, each) for each in covered)]
    return Shown(trees, links, covered, [(kernel.read_only_copy(path, recursive=True), path) for path in within])


def system_paths(more: Sequence[str] = ()) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns the system folders and settings of this machine, with more names of /etc: paths, and links as `Shown`."""
    versions = sorted(name for name in os.listdir("/etc") if name.startswith(_SETTINGS_OF))
    paths = (*SYSTEM, *(f"/etc/{name}" for name in (*_SETTINGS, *versions, *more)))
    there, links = [], []
    for path in paths:
        try:
            links.append((os.readlink(path), path))
        except OSError as error:
            if error.errno == errno.EINVAL:  # no link
                there.append(path)
    return there, links


def build(plan: dict[str, Any], shown: Shown) -> int:
    """Makes the root of this process, in its new namespaces, without anything else of the machine. Raises OSError.

    Returns a descriptor of a writable /proc; that of the session is read-only.
    """
    trees, links, covered, again = shown
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    limits = f"size={plan['disk']},nr_inodes={plan['files']},mode=0755"
    kernel.mount("tmpfs", PLACE, "tmpfs", flags, limits)
    for folder in (*_FOLDERS, plan["directory"], plan["home"]):
        os.makedirs(PLACE + folder, exist_ok=True)
    for folder in _OPEN:
        os.chmod(PLACE + folder, 0o1777)
    for folder in _FIXED:
        kernel.mount(PLACE + folder, PLACE + folder, "", kernel.MS_BIND)
    for tree, path in trees:
        kernel.put(tree, PLACE + path)
    for points_to, path in links:
        os.makedirs(os.path.dirname(PLACE + path), exist_ok=True)
        os.symlink(points_to, PLACE + path)
    os.close(os.open(PLACE + _PRELOAD, os.O_CREAT | os.O_WRONLY, 0o644))
    for path in (_PRELOAD, *covered):
        _cover(PLACE + path)
    for tree, path in again:
        kernel.put(tree, PLACE + path)
    for name, points_to in _LINKS.items():
        os.symlink(points_to, f"{PLACE}/dev/{name}")
    kernel.mount("proc", f"{PLACE}/proc", "proc", flags | kernel.MS_NOEXEC)
    with contextlib.suppress(OSError):  # a kernel without pseudo terminals
        os.mkdir(f"{PLACE}/dev/pts")
        kernel.mount(
            "devpts", f"{PLACE}/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "newinstance,ptmxmode=0666"
        )
        os.symlink("pts/ptmx", f"{PLACE}/dev/ptmx")
    _write_accounts(plan)
    kernel.pivot_root(PLACE)
    with open("/proc/sys/user/max_user_namespaces", "w", encoding="utf-8") as most:
        most.write("0")  # nobody in here makes namespaces of their own
    writable = kernel.detached("proc", kernel.ATTR_NOSUID | kernel.ATTR_NODEV | kernel.ATTR_NOEXEC)
    read_only = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY
    kernel.mount("none", "/proc", "", flags | kernel.MS_NOEXEC | read_only)
    return writable


def raise_loopback() -> None:
    """Makes 127.0.0.1 answer in a new network namespace."""
    up, get, put = 0x1, 0x8913, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, get, struct.pack("16sh14x", b"lo", 0))
        [flags] = struct.unpack_from("h", request, 16)
        fcntl.ioctl(control, put, struct.pack("16sh14x", b"lo", flags | up))


def outermost(shared: Sequence[str]) -> list[str]:
    """Returns shared paths and what they lead to, without those that are shown with another one anyway."""
    paths = {place for path in shared for place in (os.path.normpath(path), os.path.realpath(path))}
    own = {path for path in paths if path not in SYSTEM}
    return sorted(path for path in own if not any(path.startswith(f"{other}/") for other in (*own, *SYSTEM)))


def hidden_places(hidden: Sequence[str], visible: Sequence[str]) -> list[str]:
    """Returns where in a session something is seen that is to be hidden: below each path that leads to it."""
    places: dict[str, None] = {}
    for real in map(os.path.realpath, hidden):
        for path in visible:
            target = os.path.realpath(path)
            if below(real, target) and real != target:
                places |= dict.fromkeys([real, os.path.normpath(path) + real.removeprefix(target)])
    return sorted(places, key=len)


def below(path: str, folder: str) -> bool:
    """Returns whether a path is a folder or lies in it."""
    return path == folder or path.startswith(f"{folder}/")


def _cover(path: str) -> None:
    if os.path.isdir(path):
        kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=64k,mode=0755")
    elif os.path.exists(path):
        kernel.attach(kernel.device_copy(f"{PLACE}/dev/null"), path)


def _write_accounts(plan: dict[str, Any]) -> None:
    texts = {
        "passwd": f"root:x:0:0:root:/root:/bin/bash\nagent:x:{USER}:{USER}::{plan['home']}:/bin/bash\n"
        "nobody:x:65534:65534::/:/bin/false\n",
        "group": f"root:x:0:\nagent:x:{USER}:\nnogroup:x:65534:\n",
        "hostname": "session\n",
    }
    if not plan["network"]:
        texts["hosts"] = "127.0.0.1 localhost session\n"
    for name, text in texts.items():
        with open(f"{PLACE}/etc/{name}", "w", encoding="utf-8") as file:
            file.write(text)
