"""Runs programs in warm containers of a container engine, reached through its SDK (the sandbox `docker`).

A lost container, or an engine that restarts, costs a retry; without an engine the jobs are "unavailable".
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from grpo.plugins.errors import SandboxUnavailable
from grpo.plugins.sandbox_job import Job, JobResult
from grpo.rewards.sandbox.capacity import Room
from grpo.rewards.sandbox.container import LABEL, OWNER, SOCKET, Container, ContainerLost, knock, orphaned, remove

_TRIES = 2
_PAUSE = 0.5


class DockerPool:
    """One warm container at a time, with several sandboxes in it."""

    def __init__(
        self, image: str, settings: Mapping[str, Any], plan: Mapping[str, Any], patience: float, host: str
    ) -> None:
        """Starts the container. Raises SandboxUnavailable."""
        self._image, self._settings, self._plan = image, settings, plan
        self._patience, self._host = patience, host
        self._room = Room(2 * max(2, int(plan["slots"])))  # some wait inside, so that no sandbox is ever idle
        self._lock = threading.Lock()
        self._closed = False
        self.reap(host)
        self._container = self._started()

    async def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        return await self._room.run(jobs, self._run_one)

    def capabilities(self) -> Mapping[str, bool]:
        return {**self._container.capabilities, "container": True}

    def close(self) -> None:
        self._closed = True
        self._container.close()

    @classmethod
    def reap(cls, host: str = "") -> int:
        """Removes containers whose process is gone, of all runs on this machine; returns how many."""
        with listing(host) as client:
            return sum(map(remove, orphans(client, LABEL)))

    async def _run_one(self, job: Job) -> JobResult:
        places = 2 if job.peer else 1
        await self._room.take(places)
        try:
            for attempt in range(_TRIES):
                try:
                    container = self._container
                    if container.lost:
                        container = await asyncio.get_running_loop().run_in_executor(None, self._renewed, container)
                    return await container.run(job)
                except ContainerLost as error:
                    if attempt == _TRIES - 1:
                        return JobResult("sandbox_error", reason=f"{error}, twice")
                except (SandboxUnavailable, ValueError) as error:
                    trouble = isinstance(error, SandboxUnavailable)
                    return JobResult("unavailable" if trouble else "sandbox_error", reason=str(error))
            raise AssertionError("unreachable")
        finally:
            self._room.give(places)

    def _renewed(self, lost: Container) -> Container:
        """Replaces a lost container, waiting for an engine that restarts."""
        with self._lock:
            if self._container is not lost:
                return self._container
            lost.close()
            deadline = time.monotonic() + self._patience
            while True:
                if self._closed:
                    raise SandboxUnavailable("the pool is closed")
                try:
                    self._container = self._started()
                except SandboxUnavailable:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_PAUSE)
                else:
                    lost.close()  # what an engine that was away could not remove
                    return self._container

    def _started(self) -> Container:
        import docker

        client = connected(self._host)
        try:
            return Container(client, self._host, self._image, self._settings, self._plan)
        except docker.errors.ImageNotFound as error:
            client.close()
            raise SandboxUnavailable(
                f"the engine has no image '{self._image}'. Get it with: docker pull {self._image}"
            ) from error
        except (docker.errors.DockerException, OSError) as error:
            client.close()
            raise SandboxUnavailable(f"the container engine refuses the sandbox: {error}") from error


@contextmanager
def listing(host: str) -> Iterator[Any]:
    """Yields a client of the engine. Raises SandboxUnavailable: there is no engine, or it fails in the block."""
    import docker

    client = connected(host)
    try:
        yield client
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailable(f"the container engine cannot list its containers: {error}") from error
    finally:
        client.close()


def orphans(client: Any, label: str) -> list[Any]:
    """Returns the containers with a label whose process is gone."""
    containers = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
    return [container for container in containers if orphaned(str(container.labels.get(OWNER, "")))]


def connected(host: str) -> Any:
    """Returns a client of the engine. Raises SandboxUnavailable if the SDK is not installed, or no engine answers."""
    try:
        import docker
    except ImportError as error:
        raise SandboxUnavailable("the sandbox 'docker' needs the SDK: pip install 'grpo-kit[docker]'") from error
    address = host or os.environ.get("DOCKER_HOST") or SOCKET
    try:
        knock(address)
        client = docker.DockerClient(base_url=host) if host else docker.from_env()
        client.ping()
    except Exception as error:
        raise SandboxUnavailable(
            f"no container engine answers at {address} ({error}). Start it, or set DOCKER_HOST, or use the sandbox "
            "'local'."
        ) from error
    return client
