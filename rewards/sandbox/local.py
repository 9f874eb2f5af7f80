"""Provides the sandbox `local` as a plugin: programs on this machine, isolated by the kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from grpo.plugins.factory_decorators import sandbox

if TYPE_CHECKING:
    from grpo.plugins.sandbox_job import SandboxPool


@sandbox(version=1)
def local(*, slots: int = 0, python: str = "", packages: str = "", allow_degraded: bool = False) -> SandboxPool:
    """Runs programs on this machine in namespaces, with seccomp, Landlock and limits; needs no server.

    Args:
        slots: how many programs run at once; default: two for each core.
        python: the interpreter for programs; default: the one that runs grpo, without its site packages.
        packages: installed packages that programs may import, joined by "+"; each sandbox imports them once, and all
            that is installed beside them can be read.
        allow_degraded: run although a protection is missing; each result then names it.

    Raises:
        SandboxUnavailable: a protection is missing, or the interpreter cannot run.
    """
    from grpo.rewards.sandbox.interpreter import default_python
    from grpo.rewards.sandbox.plan import Plans
    from grpo.rewards.sandbox.pool import LocalPool

    names = [name.strip() for name in packages.split("+") if name.strip()]
    plans = Plans(python or default_python(), allow_degraded, names)
    return LocalPool(plans, slots or 2 * len(os.sched_getaffinity(0)))
