"""Provides the sandboxes `local` and `docker` as plugins; what runs them is loaded when a pool is made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

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


@sandbox(version=1, modules={"docker": "Install it with: pip install 'grpo-kit[docker]'"})
def docker(
    *,
    image: str = "python:3.12-slim",
    slots: int = 0,
    runtime: str = "",
    memory_mb: int = 4096,
    host: str = "",
    patience: float = 30.0,
    allow_degraded: bool = False,
) -> SandboxPool:
    """Runs programs in a warm, hardened container; needs a container engine and the extra `docker`.

    Args:
        image: an image with Python 3.11 or newer as `python3`.
        slots: how many programs run at once; default: two for each core.
        runtime: the engine's runtime, for example runsc (gVisor); default: the engine's own.
        memory_mb: the memory of the container, for all programs together.
        host: the engine's address; default: DOCKER_HOST, else the local engine.
        patience: seconds to wait for an engine that restarts.
        allow_degraded: run although a protection is missing inside the container; each result then names it.

    Raises:
        SandboxUnavailable: there is no engine, no such image, or no sandbox can be made in it.
    """
    from grpo.rewards.sandbox.docker_pool import DockerPool

    settings: dict[str, Any] = {"mem_limit": f"{memory_mb}m", "memswap_limit": f"{memory_mb}m"}
    if runtime:
        settings["runtime"] = runtime
    plan = {"slots": slots or 2 * len(os.sched_getaffinity(0)), "allow_degraded": allow_degraded}
    return DockerPool(image, settings, plan, patience, host)
