"""Provides the sessions `local` and `docker` as plugins; what opens them is loaded when a pool is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo.plugins.factory_decorators import session

if TYPE_CHECKING:
    from grpo.plugins.session import SessionPool


@session(version=1)
def local() -> SessionPool:
    """Opens sessions on this machine, in namespaces: its programs read-only, with files and processes of their own.

    Needs Linux that allows user namespaces. There is no network but 127.0.0.1 of the session. Files are kept in memory.
    Raises SandboxUnavailable: this machine does not allow it; the message says what is missing and what to do.
    """
    from grpo.rewards.session.pool import LocalPool

    return LocalPool()


@session(version=1, modules={"docker": "Install it with: pip install 'grpo-kit[docker]'"})
def docker(*, image: str = "", runtime: str = "", host: str = "") -> SessionPool:
    """Opens sessions in containers; needs a container engine and the extra `docker`.

    Without an image a session shows this machine's programs read-only, as `local` does. An image has at least the
    programs `sh`, `cat`, `chmod`, `dirname`, `mkdir` and `readlink`. Without a network, programs reach the
    addresses that the job names and nothing else.

    Args:
        image: what sessions begin with whose job names no image: the name of one that the engine has, or the path of a
            folder with a Dockerfile, of which it is built; default: this machine's system folders.
        runtime: the engine's runtime, for example runsc (gVisor); default: the engine's own.
        host: the engine's address; default: DOCKER_HOST, else the local engine.

    Raises:
        SandboxUnavailable: there is no engine or no such image.
    """
    from grpo.rewards.session.docker_pool import DockerSessions

    return DockerSessions(image, runtime, host)
