"""What each sandbox of a pool shall be: options and the machine in, plans for the launcher out.

Here it is decided which protections there are. One that the machine does not give is refused by name, with what to do
about it, unless it may be missing; it then stands in every result.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo.plugins.errors import SandboxUnavailable
from grpo.rewards.sandbox import kernel, profiles
from grpo.rewards.sandbox.bundle import SERVE
from grpo.rewards.sandbox.interpreter import LIBRARIES, find_interpreter
from grpo.rewards.sandbox.launcher import OWN, PROGRAM_ID
from grpo.rewards.sandbox.profiles import Profile, find_profile
from grpo.rewards.sandbox.syscall_numbers import known_architecture

_DEVICES = ("null", "zero", "full", "random", "urandom")
_CAPABILITIES = sum(1 << number for number in (5, 6, 7, 8, 21))  # KILL SETGID SETUID SETPCAP SYS_ADMIN
_FIRST_USER = 0x70000000  # far from any account; two for each sandbox
_USERS = 0x08000000
_serial = itertools.count(os.getpid() * 64)
_ENVIRONMENT = {"PATH": "/usr/bin", "HOME": OWN, "TMPDIR": OWN, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}

REMEDIES = {
    "linux": "run it on Linux, or use the sandbox 'docker'",
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64",
    "landlock": "use Linux 5.13 or newer with 'landlock' in the boot parameter lsm=",
}


@dataclass(frozen=True, slots=True)
class Planned:
    """What starts one sandbox: the interpreter of its launcher, the launcher's plan, the language."""

    python: str
    plan: Mapping[str, Any]
    degraded: tuple[str, ...]
    profile: Profile


class Plans:
    """The plans of one pool."""

    def __init__(self, python: str, allow_degraded: bool) -> None:
        """Finds out what the machine gives.

        Raises:
            SandboxUnavailable: a protection is missing and `allow_degraded` is not set.
        """
        if sys.platform != "linux":
            raise SandboxUnavailable(f"the sandbox 'local' needs Linux; {REMEDIES['linux']}.")
        self._python = python
        self._interpreter = find_interpreter(python)
        self._missing = _missing()
        if self._missing and not allow_degraded:
            what = "; ".join(f"{name} is missing: {REMEDIES[name]}" for name in self._missing)
            raise SandboxUnavailable(
                f"the sandbox 'local' cannot isolate programs here. {what}. Or accept it with: allow_degraded=true."
            )

    def make(self, name: str) -> Planned | None:
        """Returns the plan of a profile, or None when this machine does not offer it."""
        profile = find_profile(name)
        if profile is None:
            return None
        privileged = os.geteuid() == 0
        first = _FIRST_USER + next(_serial) % _USERS * 2
        found = self._interpreter
        inside = {
            "own": OWN,
            "own_executable": bool(profile.compile),
            "disk": 64 * 2**20,
            "file": profile.file,
            "compile": list(profile.compile),
            "command": list(profile.command),
            "maps_freely": profile.maps_freely,
            "program_user": PROGRAM_ID,
            "changes_user": privileged,
            "processes_beside": 0 if privileged else 2,  # launcher and zygote are then of the same user
            "user_namespace": True,
            "landlock": "landlock" not in self._missing,
            "seccomp": "seccomp" not in self._missing,
            "program_environment": _ENVIRONMENT,
        }
        plan = {
            "privileged": privileged,
            "user": first if privileged else os.geteuid(),
            "group": first if privileged else os.getegid(),
            "capabilities": _CAPABILITIES,
            "cgroups": [],
            "mounts": [*dict.fromkeys((*found.mounts, *profile.mounts))],
            "masks": found.masks,
            "links": [*dict.fromkeys((*found.links, *profile.links))],
            "devices": _DEVICES,
            "argv": [found.executable, "-s", "-S", "-B", "-X", "utf8", "-c", SERVE],
            "environment": {**_ENVIRONMENT, "LD_LIBRARY_PATH": LIBRARIES},
            "inside": inside,
        }
        return Planned(self._python, plan, self._missing, profile)

    def capabilities(self) -> dict[str, bool]:
        """Returns the profiles and the protections by name."""
        offered = {f"profile:{name}": find_profile(name) is not None for name in profiles.NAMES}
        return {**offered, **{name: name not in self._missing for name in ("seccomp", "landlock")}}

    def close(self) -> None:
        """Gives back what the plans hold."""

    @staticmethod
    def reap() -> int:
        """Removes what crashed runs left."""
        return 0


def _missing() -> tuple[str, ...]:
    """Returns the protections that this machine lacks."""
    there = {
        "seccomp": known_architecture() and os.path.exists("/proc/sys/kernel/seccomp/actions_avail"),
        "landlock": kernel.landlock_version() > 0,
    }
    return tuple(name for name, given in there.items() if not given)
