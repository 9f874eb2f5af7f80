"""Runs jobs in one warm container, through one connection to its agent.

The container lacks everything that an engine can take away; the agent makes the sandboxes of the pool `local` in it.
Its labels name its owner, so that another run can remove it when that process is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from grpo.plugins.child_process import receive_exactly
from grpo.plugins.errors import SandboxUnavailable
from grpo.plugins.sandbox_job import Job, JobResult
from grpo.rewards.sandbox.bundle import ASSIST, packed
from grpo.rewards.sandbox.frames import LENGTH, MOST, pack_job, unpack_result, unpack_values
from grpo.rewards.sandbox.inside.seccomp import engine_profile
from grpo.rewards.sandbox.inside.wire import PATIENCE

LABEL = "org.grpo.sandbox"
OWNER = "org.grpo.sandbox.owner"
SOCKET = "unix:///var/run/docker.sock"
START_SECONDS = 60.0
_STDOUT, _STDERR = 1, 2
_KEPT = 4000
_ENDING = 5.0  # seconds


class ContainerLost(Exception):
    """The container, the engine or the connection is gone; nothing is known about the jobs that ran."""


class Container:
    """A running container and its connection."""

    def __init__(
        self, client: Any, host: str, image: str, settings: Mapping[str, Any], plan: Mapping[str, Any]
    ) -> None:
        """Starts it with `settings` for the engine, and waits until its agent is ready."""
        self._waiting: dict[int, Future[JobResult]] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._outbox: SimpleQueue[bytes] = SimpleQueue()
        self._lost = ""
        self._errors = b""
        self._pending = bytearray()
        self._socket: Any = None
        self._threads: list[threading.Thread] = []
        self._client, self._host = client, host
        self._container = client.containers.create(
            image,
            ["python3", "-I", "-S", "-B", "-c", ASSIST],
            labels={LABEL: "1", OWNER: owner()},
            **hardened(client, settings),
        )
        try:
            parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            self._attached = self._container.attach_socket(params=parameters)
            self._socket = getattr(self._attached, "_sock", self._attached)
            self._socket.settimeout(START_SECONDS)
            self._container.start()
            bundle = packed(plan, around=True)
            self._socket.sendall(LENGTH.pack(len(bundle)) + bundle)
            greeting = unpack_values(self._frame())
            if "ready" not in greeting:
                raise SandboxUnavailable(f"no sandbox can be made in the image '{image}': {greeting.get('error')}")
            self.capabilities: dict[str, bool] = {str(name): bool(given) for name, given in greeting["ready"].items()}
            self._socket.settimeout(None)
        except (ContainerLost, OSError, ValueError) as error:
            self.close()
            text = self._errors.decode("utf-8", "replace").strip() or str(error)
            raise SandboxUnavailable(f"no sandbox can be made in the image '{image}': {text[-600:]}") from error
        except BaseException:
            self.close()
            raise
        for work in (self._read, self._write):
            self._threads.append(threading.Thread(target=work, name="grpo-container", daemon=True))
            self._threads[-1].start()

    @property
    def lost(self) -> bool:
        """True when it takes no more jobs."""
        return bool(self._lost)

    async def run(self, job: Job) -> JobResult:
        """Runs one job. Raises ContainerLost if it ended meanwhile."""
        answer: Future[JobResult] = Future()
        with self._lock:
            if self._lost:
                raise ContainerLost(self._lost)
            self._number += 1
            number = self._number
            self._waiting[number] = answer
        longest = job.limits.wall_seconds + (job.peer.limits.wall_seconds if job.peer else 0.0)
        silent = "the agent of the container does not answer"
        seconds = 3 * PATIENCE * longest + START_SECONDS
        watchdog = asyncio.get_running_loop().call_later(seconds, self._fail, silent)
        try:
            self._outbox.put(pack_job(number, job))
            return await asyncio.wrap_future(answer)
        finally:
            watchdog.cancel()
            with self._lock:
                self._waiting.pop(number, None)

    def close(self) -> None:
        self._fail("the container was closed")
        self._outbox.put(b"")
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(_ENDING)
            self._socket.close()
            self._attached.close()
            self._socket = None
        with contextlib.suppress(OSError):
            knock(self._host)
            remove(self._container)
        self._client.close()

    def _write(self) -> None:
        """Sends all waiting frames at once: every message costs the engine a copy. An empty one is the last."""
        while True:
            frames = [self._outbox.get()]
            with contextlib.suppress(Empty):
                while True:
                    frames.append(self._outbox.get_nowait())
            if b"" in frames:
                return
            try:
                self._socket.sendall(b"".join(frames))
            except OSError as error:
                self._fail(f"the connection broke: {error}")

    def _read(self) -> None:
        try:
            while True:
                number, result = unpack_result(self._frame())
                with self._lock:
                    answer = self._waiting.pop(number, None)
                if answer is not None:
                    with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
                        answer.set_result(result)
        except (ContainerLost, OSError, ValueError) as error:
            self._fail(f"the container ended: {error}")

    def _fail(self, reason: str) -> None:
        with self._lock:
            self._lost = self._lost or reason
            waiting, self._waiting = list(self._waiting.values()), {}
        for answer in waiting:
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(ContainerLost(reason))

    def _frame(self) -> bytes:
        [size] = LENGTH.unpack(self._output(LENGTH.size))
        if size > MOST:
            raise ContainerLost(f"a frame of {size} bytes")
        return self._output(size)

    def _output(self, size: int) -> bytes:
        """Reads bytes of stdout; the engine wraps both streams in chunks with a head of eight bytes."""
        while len(self._pending) < size:
            kind, length = struct.unpack(">BxxxI", receive_exactly(self._socket, 8))
            chunk = receive_exactly(self._socket, length)
            if kind == _STDOUT:
                self._pending += chunk
            elif kind == _STDERR:
                self._errors = (self._errors + chunk)[-_KEPT:]
        output = bytes(self._pending[:size])
        del self._pending[:size]
        return output


def hardened(client: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that take everything away that a container can do without."""
    security = ["no-new-privileges:true", f"seccomp={json.dumps(engine_profile())}"]
    if any("apparmor" in option for option in client.info().get("SecurityOptions") or ()):
        security.append("apparmor=unconfined")  # its profile for containers forbids the mounts of the inner sandboxes
    return {
        "stdin_open": True,
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": security,
        "read_only": True,
        "tmpfs": {"/tmp": "size=1m,mode=1777"},
        "user": "65534:65534",
        "ipc_mode": "private",
        "pids_limit": 512,
        "log_config": {"Type": "none"},
        "working_dir": "/",
        **settings,
    }


def knock(host: str) -> None:
    """Raises `OSError` when a local address has no listener: the SDK would leave its own socket open."""
    address = host or os.environ.get("DOCKER_HOST") or SOCKET
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(address.removeprefix("unix://"))


def remove(container: Any) -> bool:
    """Removes a container by force; says whether it did. One that is gone, or an engine that is, is no trouble."""
    import docker

    try:
        container.remove(force=True, v=True)
    except (docker.errors.DockerException, OSError):
        return False
    return True


def owner() -> str:
    """Returns who this process is: where its number means something, the process, and when it started."""
    return f"{_place()}/{os.getpid()}/{_started(os.getpid())}"


def orphaned(label: str) -> bool:
    """Says whether the process of an owner label is gone; one of another machine or container is not ours to judge."""
    place, _, rest = label.partition("/")
    process, _, started = rest.partition("/")
    return place == _place() and process.isdigit() and _started(int(process)) != started


def _place() -> str:
    """The boot of this machine and the pid namespace, within which a process number names one process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _started(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
