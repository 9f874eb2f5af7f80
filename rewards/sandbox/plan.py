"""Plans the set-up of each sandbox of a pool, and refuses if the machine lacks a protection, which it names."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.plugins import kernel
from grpo.plugins.errors import SandboxUnavailable
from grpo.plugins.sandbox_job import Limits
from grpo.rewards.sandbox import profiles
from grpo.rewards.sandbox.bundle import KNOWN, SERVE
from grpo.rewards.sandbox.cgroup import Group, places
from grpo.rewards.sandbox.inside.launcher import NAMESPACES, OWN, PROGRAM_ID, ZYGOTE_ID
from grpo.rewards.sandbox.inside.syscall_numbers import known_architecture
from grpo.rewards.sandbox.interpreter import LIBRARIES, find_interpreter, find_packages, pytest_packages
from grpo.rewards.sandbox.profiles import Profile, find_profile

_DEVICES = ("null", "zero", "full", "random", "urandom")
_CAPABILITIES = sum(1 << number for number in (5, 6, 7, 8, 21))  # KILL SETGID SETUID SETPCAP SYS_ADMIN
_FIRST_USER = 0x70000000  # far from any account; two for each sandbox
_USERS = 0x08000000
_serial = itertools.count(os.getpid() * 64)
_ENVIRONMENT = {"PATH": "/usr/bin", "HOME": OWN, "TMPDIR": OWN, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}

_USER_REMEDY = (
    "allow it with `sysctl kernel.unprivileged_userns_clone=1`, `sysctl user.max_user_namespaces=10000` or "
    "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, run as root, or use the sandbox 'docker'"
)
REMEDIES = {
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64",
    "landlock": "use Linux 5.13 or newer with 'landlock' in the boot parameter lsm=",
    "user namespace": _USER_REMEDY,
    **{
        name: f"use a kernel with {name}s; in a container, use the sandbox 'docker' on the host"
        for name in NAMESPACES
        if name != "user namespace"
    },
}
# Without these nothing would separate the programs from the host, so that they are never given up.
_INDISPENSABLE = ("mount namespace", "pid namespace")


@dataclass(frozen=True, slots=True)
class Planned:
    """What starts one sandbox."""

    name: str  # of the language
    python: str  # the interpreter of its launcher
    plan: Mapping[str, Any]  # what the launcher shall do
    degraded: tuple[str, ...]  # the protections that are missing
    profile: Profile  # the language
    group: Group | None  # its control group, or None


class Plans:
    def __init__(self, python: str, allow_degraded: bool, packages: Sequence[str] = ()) -> None:
        """Finds out what the machine gives; SandboxUnavailable for what may not be missing."""
        if sys.platform != "linux":
            raise SandboxUnavailable("the sandbox 'local' needs Linux. Run it there, or use the sandbox 'docker'.")
        self._python = python
        self._interpreter = find_interpreter(python)
        self._packages = find_packages(python, tuple(packages))
        self._allow_degraded = allow_degraded
        self._missing: tuple[str, ...] = ()
        self.give_up(_missing())

    def give_up(self, names: Sequence[str]) -> None:
        """Notes that the machine does not give these protections; SandboxUnavailable where that may not be."""
        vital = [name for name in names if name in _INDISPENSABLE or (name == "user namespace" and os.geteuid() != 0)]
        if names and (vital or not self._allow_degraded):
            what = " ".join(f"{name}: {REMEDIES[name]}." for name in names)
            accept = "" if vital else " Or accept it with the option allow_degraded=true."
            raise SandboxUnavailable(
                f"the sandbox 'local' cannot isolate programs here: {', '.join(names)} not available. {what}{accept}"
            )
        self._missing += tuple(names)

    def make(self, name: str) -> Planned | None:
        """Returns the plan of a profile, or None when this machine does not offer it."""
        profile = find_profile(name)
        if profile is None:
            return None
        privileged, mapped = os.geteuid() == 0, "user namespace" not in self._missing
        first = _FIRST_USER + next(_serial) % _USERS * 2
        interpreter, shown = self._interpreter, pytest_packages() if name == "pytest" else self._packages
        group = Group(places()) if places() else None
        inside = {
            "own": OWN,
            "known": KNOWN,
            "own_executable": bool(profile.compile),
            "disk": Limits().disk_bytes,
            "file": profile.file,
            "compile": list(profile.compile),
            "command": list(profile.command),
            "maps_freely": profile.maps_freely,
            "program_user": PROGRAM_ID if mapped else first + 1,
            "changes_user": privileged,
            "processes_beside": 0 if privileged else 2,  # launcher and zygote are then of the same user
            "landlock": "landlock" not in self._missing,
            "seccomp": "seccomp" not in self._missing,
            "clock": bool(group and group.clock()),
            "folders": list(shown.folders),
            "packages": list(shown.names),
            "program_environment": {**_ENVIRONMENT, **({"LD_LIBRARY_PATH": LIBRARIES} if profile.command else {})},
        }
        plan = {
            "privileged": privileged,
            "namespaces": [name for name in NAMESPACES if name not in self._missing],
            "user": first if privileged else os.geteuid(),
            "group": first if privileged else os.getegid(),
            "zygote_user": ZYGOTE_ID if mapped else first,
            "capabilities": _CAPABILITIES,
            "cgroups": group.entries() if group else [],
            "clock": group.clock() if group else "",
            "mounts": [*dict.fromkeys((*interpreter.mounts, *profile.mounts, *shown.mounts))],
            "masks": interpreter.masks,
            "links": [*dict.fromkeys((*interpreter.links, *profile.links, *shown.links))],
            "devices": _DEVICES,
            "argv": [interpreter.executable, "-s", "-S", "-B", "-X", "utf8", "-c", SERVE],
            # What is bound once in the zygote need not be bound in every program. An arena for each thread would take
            # an eighth of the default memory, as address space is what is limited.
            "environment": {
                **_ENVIRONMENT,
                **shown.environment,
                "LD_LIBRARY_PATH": LIBRARIES,
                "LD_BIND_NOW": "1",
                "MALLOC_ARENA_MAX": "1",
            },
            "inside": inside,
        }
        return Planned(name, self._python, plan, self._missing, profile, group)

    def capabilities(self) -> dict[str, bool]:
        """Returns the profiles and the protections by name."""
        offered = {f"profile:{name}": find_profile(name) is not None for name in profiles.NAMES}
        given = {name: name not in self._missing for name in REMEDIES}
        return {**offered, **given, "cgroup memory": bool(places())}


def _missing() -> tuple[str, ...]:
    """What is missing, as far as that shows before a sandbox is started."""
    there = {
        "seccomp": known_architecture() and os.path.exists("/proc/sys/kernel/seccomp/actions_avail"),
        "landlock": kernel.landlock_version() > 0,
    }
    return tuple(name for name, given in there.items() if not given)
