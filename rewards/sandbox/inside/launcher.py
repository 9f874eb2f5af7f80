"""Makes the namespaces of one slot and becomes its zygote.

Theory of operation, in this order: (1) new user, mount, pid, network, IPC, UTS and cgroup namespaces; (2) the user is
mapped; (3) detached read-only copies of everything that the sandbox may see are taken while the host's files are in
sight; (4) an empty tmpfs becomes the root, the copies are attached, the rest of the host is gone; (5) root becomes an
ordinary user, and a child, process 1 of the new pid namespace, starts a fresh interpreter from the copies: nothing of
the caller's memory, environment or descriptors is left in it. The launcher then waits; what it starts dies with it.

This module runs in a process of its own, without the site packages, and imports the standard library only.
"""

from __future__ import annotations

import json
import marshal
import os
import resource
import socket
import sys
from typing import Any

from grpo.plugins import kernel

NAMESPACES = {
    "user namespace": kernel.NEWUSER,
    "mount namespace": kernel.NEWNS,
    "pid namespace": kernel.NEWPID,
    "network namespace": kernel.NEWNET,
    "ipc namespace": kernel.NEWIPC,
    "uts namespace": kernel.NEWUTS,
    "cgroup namespace": kernel.NEWCGROUP,
}
OWN = "/tmp"
_STACK = 64 * 2**20
_PLACES = ("/tmp", "/run", "/mnt", "/var")
# Inside the user namespace: the zygote and the programs; root has two users to give, others have only their own.
ZYGOTE_ID, PROGRAM_ID = 1, 2


class Missing(Exception):
    """Protections that this machine does not give; the one argument is the list of their names."""


def main(control: int, bundle: int, plan: dict[str, Any]) -> None:
    """Makes the sandbox and runs its zygote until that ends.

    `bundle`: a memory file with the zygote's modules. `plan`: mounts, masks, links, argv, environment, user.
    """
    try:
        if plan["privileged"]:
            os.setgroups([])
        code = _compiled(bundle, plan["inside"])
        clock = os.open(plan["clock"] or os.devnull, os.O_RDONLY)
        processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        for entry in plan["cgroups"]:
            _write(entry, "0")
        _spare_the_host()
        _enter(plan)
        _build(plan)
        child = os.fork()
        if child == 0:
            _become_zygote((control, code, clock, processes), plan)
        os.close(control)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    except (OSError, Missing) as error:
        names = error.args[0] if isinstance(error, Missing) else []
        message = json.dumps({"error": str(error), "missing": names}).encode()
        with socket.socket(fileno=control) as pool:
            pool.send(message)
        os._exit(1)


def _compiled(bundle: int, inside: dict[str, Any]) -> int:
    modules = json.loads(os.pread(bundle, os.fstat(bundle).st_size, 0))["modules"]
    codes = [
        (name, None if source is None else compile(source, name, "exec", dont_inherit=True, optimize=2))
        for name, source in modules.items()
        if name != __name__
    ]
    descriptor = os.memfd_create("grpo-zygote")
    view = memoryview(marshal.dumps((codes, inside)))
    while view:
        view = view[os.write(descriptor, view) :]
    return descriptor


def _spare_the_host() -> None:
    """When memory runs out, the kernel shall end sandboxes first."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            score.write("500")
    except OSError as error:
        sys.stderr.write(f"oom_score_adj: {error}\n")


def _enter(plan: dict[str, Any]) -> None:
    flags = 0
    for name in plan["namespaces"]:
        flags |= NAMESPACES[name]
    mapper = _mapper(plan["user"]) if plan["privileged"] and flags & kernel.NEWUSER else None
    try:
        kernel.unshare(flags)
    except OSError as error:
        raise Missing(_not_given(plan["namespaces"], plan["privileged"])) from error
    if mapper:
        process, ready, done = mapper
        os.write(ready, b"x")
        fault = os.read(done, 200)
        os.waitpid(process, 0)
        os.close(ready)
        os.close(done)
        if fault:
            raise Missing(["user namespace"])
    elif flags & kernel.NEWUSER:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{PROGRAM_ID} {plan['user']} 1")
        _write("/proc/self/gid_map", f"{PROGRAM_ID} {plan['group']} 1")


def _mapper(user: int) -> tuple[int, int, int]:
    """Starts a process that writes this one's user map when told: only from outside may several users be named.

    Returns the process, the descriptor that starts it, and the one that says what went wrong, or nothing.
    """
    ready, done = os.pipe(), os.pipe()
    launcher = os.getpid()
    process = os.fork()
    if process == 0:
        os.close(ready[1])
        os.read(ready[0], 1)
        mapping = f"0 0 1\n{ZYGOTE_ID} {user} 2\n"
        try:
            _write(f"/proc/{launcher}/uid_map", mapping)
            _write(f"/proc/{launcher}/gid_map", mapping)
        except OSError as error:
            os.write(done[1], str(error).encode()[:200])
        os._exit(0)
    os.close(ready[0])
    os.close(done[1])
    return process, ready[1], done[0]


def _not_given(names: list[str], privileged: bool) -> list[str]:
    """Tries each namespace in a process of its own."""
    refused = []
    for name in names:
        child = os.fork()
        if child == 0:
            try:
                kernel.unshare(NAMESPACES[name] | (0 if privileged else kernel.NEWUSER))
            except OSError:
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            refused.append(name)
    return refused or names


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _build(plan: dict[str, Any]) -> None:
    """An empty tmpfs with the copies in it, and nothing else of the host."""
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    trees = [(kernel.read_only_copy(source), target) for source, target in plan["mounts"]]
    trees += [(kernel.device_copy(f"/dev/{name}"), f"/dev/{name}") for name in plan["devices"]]
    place = next(place for place in _PLACES if os.path.isdir(place))
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", place, "tmpfs", flags, "size=1m,nr_inodes=512,mode=0755")
    for tree, target in trees:
        kernel.put(tree, place + target)
    for target in plan["masks"]:
        if os.path.isdir(place + target):
            kernel.mount("tmpfs", place + target, "tmpfs", flags | kernel.MS_RDONLY, "size=4k,nr_inodes=2,mode=0755")
    for points_to, path in plan["links"]:
        os.makedirs(os.path.dirname(place + path), exist_ok=True)
        os.symlink(points_to, place + path)
    os.makedirs(place + OWN, exist_ok=True)
    kernel.pivot_root(place)
    kernel.mount("none", "/", "", flags | kernel.MS_REMOUNT | kernel.MS_RDONLY, "size=1m,nr_inodes=512,mode=0755")


def _become_zygote(descriptors: tuple[int, ...], plan: dict[str, Any]) -> None:
    """Starts the interpreter inside, as process 1, with the capabilities that a zygote needs."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = _STACK if hard == resource.RLIM_INFINITY else min(_STACK, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))
    for number, descriptor in enumerate([os.dup(descriptor) for descriptor in descriptors], 3):
        os.dup2(descriptor, number)  # inheritable; the copies are not
    kernel.close_from(3 + len(descriptors))
    if plan["privileged"]:
        user = plan["zygote_user"]
        kernel.prctl(kernel.PR_SET_KEEPCAPS, 1)
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.keep_capabilities_over_exec(plan["capabilities"])
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
    os.execve(plan["argv"][0], plan["argv"], plan["environment"])
