"""Opens sessions in containers of an engine, and removes what crashed runs left there (the session `docker`)."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

from grpo.plugins.errors import SandboxUnavailable, SessionError, SessionLost
from grpo.plugins.session import DIRECTORY, HOME, Exit, Session, SessionJob
from grpo.rewards.sandbox.container import OWNER, knock, orphaned, owner, remove
from grpo.rewards.sandbox.docker_pool import connected, listing, orphans
from grpo.rewards.session.docker_exec import DockerProcess, Execution
from grpo.rewards.session.docker_machine import (
    LABEL,
    Beginning,
    built_image,
    files_of,
    hardened,
    machine_image,
    settings_of,
)
from grpo.rewards.session.docker_ports import Ports, remove_folder
from grpo.rewards.session.owned import own
from grpo.rewards.session.proxy import Port, Proxy
from grpo.rewards.session.request import absolute, environment_of, most_files, refuse_missing, unfit

_EXPIRED = "the time of the session is up"
_START_SECONDS = 60.0  # for the start of a command
_KILL_SECONDS = 20.0  # for the start of what kills a process group, and its end
_ENDING = 5.0  # seconds for the end of streams
_FILE_SECONDS = 300.0  # for one file
_PAUSE = 0.2
_READ_BYTES = 1 << 16
_LOOK = 1.0  # seconds from one look at the time and the size of sessions to the next
_COUNT = 10  # looks from one count of their files to the next, which takes longer
_CHANGE = b'"Kind"'  # in the engine's list of changed files once for each; in a name its quotes have a backslash
_SIGKILL = 9
_KILLED = 128 + _SIGKILL  # the status of a container that was ended from outside
_SPOILT = "programs of the session have replaced what keeps its container alive"
_KILL = "kill -s KILL -- -{process}"
_OOM = """\
for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
  if [ -r $file ]; then
    while read -r name number; do if [ "$name" = oom_kill ]; then echo "$number"; fi; done < $file
  fi
done"""
_READ = """\
case $(readlink -f -- "$1") in /proc/*|/sys/*|/dev/*) echo 'it is no plain file' >&2; exit 1 ;; esac
if [ -f "$1" ]; then exec cat -- "$1"; fi
if [ -e "$1" ]; then echo 'it is no plain file' >&2; else echo 'there is no such file' >&2; fi
exit 1"""
_WRITE = """\
if [ -e "$1" ] && [ ! -f "$1" ]; then echo 'it is no plain file' >&2; exit 1; fi
mkdir -p -- "$(dirname -- "$1")" && cat > "$1" && chmod "$2" "$1\""""


class DockerSessions:
    """Sessions of an engine; see `grpo.plugins.session.SessionPool`, and the session `docker` for the options."""

    def __init__(self, image: str, runtime: str, host: str) -> None:
        import docker

        self._image, self._host = image, host
        self._settings = {"runtime": runtime} if runtime else {}
        self._lock = threading.Lock()
        self._building = threading.Lock()
        self._sessions: dict[str, DockerSession] = {}
        self._beginnings: dict[str, Beginning] = {}
        self._unused: set[str] = set()
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._watched, name="grpo-containers", daemon=True)
        self.proxy = Proxy()
        self.reap(host)
        self.client = connected(host)
        try:
            self._memory = bool(self.client.info().get("MemoryLimit"))
            self._quota = self._has_quota(self._beginning(image))
            if image:  # else jobs may name one, and this machine's folders may be out of the engine's reach
                self.opened(SessionJob(), self._beginning(image)).close()
        except (docker.errors.DockerException, OSError, SessionError, SessionLost) as error:
            self.client.close()
            raise SandboxUnavailable(f"the session 'docker' cannot be used: {error}") from error
        self._watch.start()

    def open(self, job: SessionJob) -> DockerSession:
        beginning = self._beginning(job.image or self._image)
        return self.opened(job, beginning, files_of(job, beginning))

    def opened(self, job: SessionJob, beginning: Beginning, files: bytes = b"") -> DockerSession:
        """Opens a session in a new container, with an archive of files. Raises SessionError, SessionLost."""
        import docker

        if self._closed.is_set():
            raise SessionLost("the pool of sessions is closed.")
        refuse_missing(job.shared)
        settings = settings_of(job, beginning, quota=self._quota) | self._settings
        session: DockerSession | None = None
        try:
            knock(self._host)
            session = DockerSession(self, job, self.client.containers.create(**settings), beginning)
            session.begin(files)
        except (docker.errors.DockerException, OSError, SessionLost) as error:
            if session is not None:
                session.close()
            if isinstance(error, SessionLost):
                raise
            raise SessionLost(f"the container engine gives no session of '{beginning.image}': {error}.") from error
        with self._lock:
            self._sessions[session.container] = session
        return session

    def forget(self, container: str, images: set[str]) -> None:
        """Removes the images of a session that was closed; those that forks still run from go with the last of them."""
        import docker

        with self._lock:
            self._sessions.pop(container, None)
            self._unused |= images
            for image in sorted(self._unused):
                with contextlib.suppress(docker.errors.DockerException, OSError):
                    with contextlib.suppress(docker.errors.ImageNotFound):
                        self.client.images.remove(image, force=True)
                    self._unused.discard(image)

    def capabilities(self) -> Mapping[str, bool]:
        able = ("build", "image", "network", "port", "reach", "shared paths", "snapshot", "no network", "container")
        return {**dict.fromkeys(able, True), "disk limit": self._quota, "cgroup memory": self._memory}

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            sessions = list(self._sessions.values())
        for session in sessions:
            session.close()
        self._watch.join()
        self.proxy.close()
        self.client.close()

    @classmethod
    def reap(cls, host: str = "") -> int:
        """Removes containers and images whose process is gone, of all runs on this machine; returns how many."""
        import docker

        removed = 0
        with listing(host) as client:
            for container in orphans(client, LABEL):
                remove_folder(container.labels)
                removed += remove(container)
            for image in client.images.list(filters={"label": LABEL}):
                if orphaned(str(image.labels.get(OWNER, ""))):
                    with contextlib.suppress(docker.errors.DockerException):
                        client.images.remove(image.id, force=True)
                        removed += 1
        return removed

    def _beginning(self, image: str) -> Beginning:
        """Builds the image of a folder. Raises SessionError, SessionLost."""
        import docker

        with self._building:
            if image not in self._beginnings:
                try:
                    if not image:
                        beginning = Beginning(machine_image(self.client), machine=True)
                    else:
                        name = built_image(self.client, image) if image.startswith(("/", ".")) else image
                        directory = (self.client.images.get(name).attrs["Config"] or {}).get("WorkingDir", "")
                        beginning = Beginning(name, directory if directory not in ("", "/") else DIRECTORY)
                except docker.errors.ImageNotFound as error:
                    raise SessionError(
                        f"the engine has no image '{image}'. Get it with: docker pull {image}"
                    ) from error
                except (docker.errors.DockerException, OSError) as error:
                    raise SessionLost(f"the container engine gives no image: {error}") from error
                self._beginnings[image] = beginning
            return self._beginnings[image]

    def _has_quota(self, beginning: Beginning) -> bool:
        """Whether the engine limits a container's disk: that depends on the file system below it."""
        import docker

        try:
            size = {"size": str(2**24)}
            remove(self.client.containers.create(beginning.image, ["sh"], storage_opt=size, **hardened()))
        except (docker.errors.DockerException, OSError):
            return False
        return True

    def _watched(self) -> None:
        """Ends the programs of sessions whose time is up, or whose files are over their limits."""
        for look in itertools.count():
            if self._closed.wait(_LOOK):
                return
            with self._lock:
                sessions = dict(self._sessions)
            if sessions and not self._quota:
                with contextlib.suppress(Exception):  # an engine that is away: its sessions are lost anyway
                    labels = {"label": [f"{OWNER}={owner()}", LABEL]}
                    for row in self.client.api.containers(size=True, filters=labels):
                        if row["Id"] in sessions:
                            sessions[row["Id"]].judge_size(row.get("SizeRw") or 0)
            for session in sessions.values():
                session.judge_time()
            for session in sessions.values() if look % _COUNT == 0 else ():
                with contextlib.suppress(Exception):
                    session.judge_number()


class DockerSession:
    """One container; see `grpo.plugins.session.Session`."""

    home = HOME

    def __init__(self, pool: DockerSessions, job: SessionJob, container: Any, beginning: Beginning) -> None:
        self._pool, self._job, self._container, self._beginning = pool, job, container, beginning
        self.directory = beginning.directory
        self.container: str = container.id
        self._api = container.client.api
        self._lock = threading.Lock()  # held while the container is stopped and started
        self._snapshots: dict[str, str] = {}
        self._ports: Ports | None = None
        self._offers: list[Port] = []
        self._input: Any = None  # of what keeps the container alive
        self._closed = self._expired = False
        self._ended_for_memory = 0
        self._deadline = time.monotonic() + job.limits.seconds

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        directory: str = "",
    ) -> Exit:
        if refused := unfit(argv):
            return Exit(None, problem=refused)
        if self._expired:
            return Exit(None, timed_out=True, problem=_EXPIRED)
        try:
            left = self._ran(argv, stdin, env, timeout, directory, self._job.limits.output_bytes)
        except SessionError as error:
            return Exit(None, problem=str(error))
        return replace(left, out_of_memory=left.code == -_SIGKILL and self._memory_was_short())

    def start(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, directory: str = "") -> DockerProcess:
        if refused := unfit(argv) or (_EXPIRED if self._expired else ""):
            raise SessionError(f"{refused}.")
        early: list[tuple[int, bytes]] = []
        execution = self._execution(argv, env, directory)
        try:
            execution.read(lambda stream, data: early.append((stream, data)), None, begin=True)
            if execution.problem:
                self._refuse_lost()
                raise SessionError(f"{execution.problem}.")
        except BaseException:
            execution.close()
            raise
        return DockerProcess(execution, early, self._end, self._ending)

    def read(self, path: str) -> bytes:
        return self._did(["sh", "-c", _READ, "sh", self._path(path)], f"{path!r} cannot be read in the session").stdout

    def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        command = ["sh", "-c", _WRITE, "sh", self._path(path), f"{mode:o}"]
        self._did(command, f"{path!r} cannot be written in the session", content)

    def tar(self, path: str = "") -> BinaryIO:
        import docker

        whole = self._path(path) if path else self.directory
        archive = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            with self._engine():
                try:
                    pieces, _ = self._container.get_archive(whole)
                except docker.errors.NotFound as error:
                    self._refuse_lost()
                    raise SessionError(f"{path!r}: there is nothing at that path in the session.") from error
                for piece in pieces:
                    archive.write(piece)
        except BaseException:
            archive.close()
            raise
        archive.seek(0)
        return archive

    def port(self, number: int) -> str:
        self._refuse_closed()
        ports = self.make_ports()
        port, address = self._pool.proxy.offer(lambda: ports.connected(number))
        self._offers.append(port)
        return address

    def begin(self, files: bytes) -> None:
        """Starts the session with an archive of files. Raises what the SDK raises, SessionLost."""
        if files:
            self._container.put_archive("/", files)
        self._start()
        if self._job.reach:
            self.make_ports()

    def _start(self) -> None:
        """Starts the container, which ends with this process. Raises what the SDK raises."""
        self._end_input()
        self._input = self._container.attach_socket(params={"stdin": 1, "stream": 1})
        own(getattr(self._input, "_sock", self._input))
        self._container.start()

    def _end_input(self) -> None:
        if self._input is not None:
            getattr(self._input, "_sock", self._input).close()
            self._input.close()

    def make_ports(self) -> Ports:
        """Makes what connects the session's ports, unless it is there. Raises SessionLost."""
        with self._lock:
            if self._ports is None:
                self._ports = Ports(self._pool.client, self.container, self._job.reach, self._pool.proxy)
            return self._ports

    def stop(self) -> None:
        with self._lock:
            self._refuse_closed()
            with contextlib.suppress(SessionError), self._engine():  # spoilt: nothing runs
                self._container.kill()
                self._container.wait(timeout=_FILE_SECONDS)
                self._start()
                if self._ports:
                    self._ports.renew()

    def snapshot(self) -> str:
        self._refuse_closed()
        with self._engine():
            image = self._container.commit()
        with self._lock:
            name = f"snapshot-{len(self._snapshots)}"
            self._snapshots[name] = image.id
        return name

    def fork(self, snapshot: str) -> Session:
        self._refuse_closed()
        with self._lock:
            image = self._snapshots.get(snapshot)
        if image is None:
            raise SessionError(f"the session has no snapshot {snapshot!r}.")
        return self._pool.opened(self._job, replace(self._beginning, image=image))

    def capabilities(self) -> Mapping[str, bool]:
        return self._pool.capabilities()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for port in self._offers:
            port.close()
        if self._ports:
            self._ports.close()
        remove(self._container)
        self._end_input()
        self._pool.forget(self.container, set(self._snapshots.values()))

    def judge_time(self) -> None:
        """Kills every process when the time of the session is up."""
        if not self._expired and time.monotonic() >= self._deadline:
            self._expired = True
            with contextlib.suppress(SessionLost):
                self.stop()

    def judge_size(self, size: int) -> None:
        """Kills every process when the files of the session are larger than they may be."""
        if size > self._job.limits.disk_bytes:
            with contextlib.suppress(SessionLost):
                self.stop()

    def judge_number(self) -> None:
        """Kills every process when the session has more files than it may have. Raises what the SDK raises."""
        address = f"{self._api.base_url}/v{self._api.api_version}/containers/{self.container}/changes"
        count, end = 0, b""
        with self._api.get(address, stream=True, timeout=self._api.timeout) as answer:
            for piece in answer.iter_content(_READ_BYTES):
                text = end + piece
                count += text.count(_CHANGE)
                end = text[1 - len(_CHANGE) :]
        if count > most_files(self._job.limits.disk_bytes):
            self.stop()

    def _path(self, path: str) -> str:
        return absolute(path, self.directory)

    def _execution(self, argv: Sequence[str], env: Mapping[str, str] | None, directory: str) -> Execution:
        self._refuse_closed()
        variables = environment_of(self._job) | dict(env or {})
        where = self._path(directory) if directory else self.directory
        with self._engine():
            return Execution(
                self._api, self.container, argv, user=self._beginning.user, environment=variables, directory=where
            )

    def _ran(
        self,
        argv: Sequence[str],
        stdin: bytes,
        env: Mapping[str, str] | None,
        timeout: float | None,
        directory: str,
        most: float,
    ) -> Exit:
        """Keeps `most` bytes of stdout and stderr each. Raises SessionLost."""
        began = time.monotonic()
        texts, omitted = (bytearray(), bytearray()), 0

        def take(stream: int, data: bytes) -> None:
            nonlocal omitted
            kept = data if most - len(texts[stream]) >= len(data) else data[: int(most) - len(texts[stream])]
            texts[stream].extend(kept)
            omitted += len(data) - len(kept)

        execution = self._execution(argv, env, directory)
        try:
            execution.feed(stdin)
            begun = execution.read(take, _START_SECONDS, begin=True)  # what a busy engine takes is not the command's
            timed_out = not (begun and execution.read(take, timeout))
            if timed_out:
                self._end(execution)
                if not execution.read(take, _ENDING):
                    self.stop()  # what it started in another group holds its streams
                    execution.read(take, _ENDING)
            if execution.problem:
                self._refuse_lost()
                return Exit(None, timed_out=timed_out, problem=execution.problem)
            code = self._ending(execution)
        finally:
            execution.close()
        stdout, stderr = map(bytes, texts)
        timed_out = timed_out or (self._expired and code == -_SIGKILL)
        return Exit(code, stdout, stderr, timed_out, omitted=omitted, seconds=time.monotonic() - began)

    def _did(self, argv: Sequence[str], failure: str, stdin: bytes = b"") -> Exit:
        """Runs a command of our own. Raises SessionError, SessionLost."""
        left = self._ran(argv, stdin, None, _FILE_SECONDS, "/", float("inf"))
        if left.code != 0:
            why = left.problem or left.stderr.decode(errors="replace").strip() or f"status {left.code}"
            raise SessionError(f"{failure}: {why}.")
        return left

    def _end(self, execution: Execution) -> None:
        """Kills the process group of a command; every process, where no more can be started. Raises SessionLost."""
        killed = None
        if execution.process:
            killer = self._execution(["sh", "-c", _KILL.format(process=execution.process)], None, "/")
            try:
                killer.end_input()
                if killer.read(lambda _stream, _data: None, _KILL_SECONDS) and not killer.problem:
                    killed = killer.status()
            finally:
                killer.close()
        if killed is None:
            execution.cut()  # output that nobody reads would keep the engine from ending the container
            self.stop()

    def _ending(self, execution: Execution) -> int:
        """The status of a command whose streams have ended. Raises SessionLost."""
        with self._engine():
            code = execution.status()
        if code is None or code == -_SIGKILL:
            self._refuse_lost()  # a container that ended takes its commands along
        return -_SIGKILL if code is None else code

    def _memory_was_short(self) -> bool:
        """Whether the limit of memory ended a program since this was last asked. Raises SessionLost."""
        counted = self._ran(["sh", "-c", _OOM], b"", None, _ENDING, "/", float("inf")).stdout.split()
        before, self._ended_for_memory = self._ended_for_memory, max(map(int, counted), default=0)
        return self._ended_for_memory > before

    @contextlib.contextmanager
    def _engine(self) -> Iterator[None]:
        """Turns errors of the engine into SessionLost."""
        import docker

        try:
            yield
        except (docker.errors.DockerException, OSError) as error:
            self._refuse_closed()
            self._refuse_spoilt()
            raise SessionLost(f"the container of the session is gone, or its engine: {error}.") from error

    def _refuse_spoilt(self) -> None:
        """Raises SessionError where the container has ended by itself: its programs did that."""
        import docker

        with contextlib.suppress(docker.errors.DockerException, OSError):
            self._container.reload()
            state = self._container.attrs["State"]
            if state["Status"] == "exited" and state["ExitCode"] != _KILLED:
                raise SessionError(f"{_SPOILT}.")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SessionLost("the session is closed.")

    def _refuse_lost(self) -> None:
        """Raises SessionLost where the container has ended; the engine may learn of that later than of its commands."""
        deadline = time.monotonic() + _ENDING
        with self._lock, self._engine():
            while True:
                self._refuse_closed()
                self._container.reload()
                if self._container.status != "running":
                    self._refuse_spoilt()
                    raise SessionLost("the session was ended from outside.")
                if self._answers() or time.monotonic() > deadline:  # a fork bomb lets nothing answer
                    return
                time.sleep(_PAUSE)

    def _answers(self) -> bool:
        execution = Execution(self._api, self.container, ["sh", "-c", ":"], user=self._beginning.user)
        try:
            execution.end_input()
            execution.read(lambda _stream, _data: None, _ENDING, begin=True)
            return execution.process != 0
        finally:
            execution.close()
