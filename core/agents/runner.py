"""Starts an agent for each episode and returns its result once all its processes are dead.

Theory of operation. One launcher process serves a run. It imports a Python agent once and forks a supervisor for each
episode, which runs the agent and ends what it started (`supervisor.py`). One thread of this process reads the results;
files are read back and folders removed in a few others.

With user namespaces, every agent has the same paths for working directory, HOME and /tmp, so a prompt that shows them
is the same for a group, and all other files are read-only. Elsewhere an agent can change what its user can. Neither is
a wall: an agent can read the files of its user and use the network.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import logging
import os
import selectors
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from grpo.core.agents.folder import OWN, PLACES, BadFiles, Folder
from grpo.core.agents.kernel import end_by_key, namespaces_refused
from grpo.core.agents.launcher import READY, packed_agent
from grpo.core.agents.program import AgentExit
from grpo.core.text.printable import encodable
from grpo.plugins._spec.binding import BoundAgent
from grpo.plugins.agents import Access, AgentTask, Command, search_path
from grpo.plugins.child_process import LENGTH, ChildProcess, receive_message, send_message
from grpo.plugins.errors import PluginError, UsageError

_LOG = logging.getLogger("grpo.agents")
_READ = 1 << 18
_LAST_WORDS = 5.0  # seconds for a launcher that is told to end, beyond what its supervisors take

Ended = Callable[[int, AgentExit], None]


@dataclass(slots=True)
class _Episode:
    number: int
    key: str
    folder: Folder
    channel: socket.socket
    received: bytearray = field(default_factory=bytearray)


class AgentRunner:
    """Runs agents, each for one episode of at most `seconds`. Raises UsageError if a Python agent cannot be imported.

    `ended`: called in a thread of the runner with an episode's number and what is left of its agent, when every process
    of it is dead; not after `close` has begun. `namespaces`: None: where this machine allows them. `notice`: what a
    user should know about this machine, or "".
    """

    def __init__(self, agent: BoundAgent, seconds: float, ended: Ended, *, namespaces: bool | None = None) -> None:
        self._agent, self._seconds, self._ended = agent, seconds, ended
        refused = namespaces_refused() if namespaces is None else "" if namespaces else "they are switched off"
        self._namespaces = not refused
        self.notice = ""
        if refused:
            self.notice = (
                f"agents run without namespaces ({refused}): what they run can change every file that you can, each "
                "sees its own working directory and HOME by another path, and /tmp is shared."
            )
        self._lock = threading.Lock()
        self._episodes: dict[int, _Episode] = {}
        self._closed = False
        self._root = Path(tempfile.mkdtemp(prefix="grpo-agents-"))
        (self._root / "import").mkdir()
        try:
            self._launcher = self._launch()
        except BaseException:
            shutil.rmtree(self._root, ignore_errors=True)
            raise
        self._wake, self._waker = socket.socketpair()
        self._pool = ThreadPoolExecutor(4, "grpo-agent")
        self._thread = threading.Thread(target=self._serve, name="grpo-agents", daemon=True)
        self._thread.start()

    def start(self, number: int, task: AgentTask, access: Access) -> None:
        """Starts an agent under a number that no other running one has; a failure to start is an end, too."""
        folder = Folder(Path(tempfile.mkdtemp(prefix=f"{number}-", dir=self._root)), namespaces=self._namespaces)
        try:
            plan = self._plan(folder, replace(task, directory=folder.directory, home=folder.home), access)
            channel = self._supervisor(plan)
        except (BadFiles, PluginError, OSError) as error:
            self._pool.submit(self._hand_over, number, folder, AgentExit(None, False, 0.0, problem=str(error)))
            return
        episode = _Episode(number, access.key, folder, channel)
        with self._lock:
            self._episodes[number] = episode
        self._waker.send(b"x")

    def kill(self, number: int) -> None:
        """Ends an agent, if it still runs; it is reported as any other."""
        with self._lock:
            episode = self._episodes.get(number)
            if episode is not None:
                with contextlib.suppress(OSError):
                    episode.channel.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Ends all agents and removes what they left; returns when every process is dead."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for episode in self._episodes.values():
                with contextlib.suppress(OSError):
                    episode.channel.shutdown(socket.SHUT_WR)
        self._waker.send(b"x")
        self._thread.join()
        self._pool.shutdown()
        self._launcher.end(_LAST_WORDS)
        for end in (self._wake, self._waker):
            end.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def __enter__(self) -> AgentRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self) -> ChildProcess:
        spec = self._agent.spec
        home = str(self._root / "import")
        launcher = ChildProcess(
            "grpo.core.agents.launcher",
            [[] if spec.command else [*spec.modules], home],
            environment=_variables(home, home) | dict(spec.environment),
        )
        try:
            packed = b""
            if not spec.command:
                packed = packed_agent(self._agent)
            send_message(launcher.channel, packed)
            answer = receive_message(launcher.channel)
        except ConnectionError:
            launcher.end()
            raise UsageError(f"agent '{self._agent.name}': the process that imports it {launcher.ending()}.") from None
        if answer != READY:
            launcher.end()
            raise UsageError(f"agent '{self._agent.name}' cannot be imported: {answer.decode(errors='replace')}")
        return launcher

    def _plan(self, folder: Folder, task: AgentTask, access: Access) -> dict[str, Any]:
        spec = self._agent.spec
        command = self._agent.command(task, access) if spec.command else Command(["python"])
        folder.write(task.files)
        folder.write(command.files)
        variables = _variables(folder.home, folder.temporary) | doors(access)
        plan: dict[str, Any] = {
            "folder": str(folder.path),
            "directory": folder.directory,
            "seconds": self._seconds,
            "namespaces": self._namespaces,
            "environment": variables | dict(spec.environment) | dict(command.environment),
            "stdin": folder.stdin(command.stdin),
        }
        if spec.command:
            plan["argv"] = [*command.argv]
        else:
            plan |= {"task": asdict(task), "access": asdict(access)}
        if self._namespaces:
            used = [*self._agent.files, *(command.argv if spec.command else sys.path)]
            plan |= {"places": folder.places, "kept": [folder.keep(entry) for entry in self._in_sight(used)]}
        return plan

    def _in_sight(self, used: Sequence[str]) -> list[str]:
        """Returns the entries of the machine's /tmp that an agent still sees: those with its program or imports."""
        paths = [*used, *search_path().split(os.pathsep), sys.prefix, sys.base_prefix]
        return _entries(tuple(path for path in paths if Path(path).is_absolute() and len(path) < 4096), str(self._root))

    def _supervisor(self, plan: dict[str, Any]) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                try:
                    socket.send_fds(self._launcher.channel, [b"x"], [theirs.fileno()])
                except OSError:  # it was killed
                    self._launcher.end()
                    self._launcher = self._launch()
                    socket.send_fds(self._launcher.channel, [b"x"], [theirs.fileno()])
            send_message(ours, json.dumps(plan).encode())
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return ours

    def _serve(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._wake, selectors.EVENT_READ)
        watched: set[int] = set()
        with selector:
            while True:
                with self._lock:
                    for number in self._episodes.keys() - watched:
                        episode = self._episodes[number]
                        selector.register(episode.channel, selectors.EVENT_READ, episode)
                        watched.add(number)
                    if self._closed and not watched:
                        return
                for key, _ in selector.select():
                    if key.data is None:
                        self._wake.recv(4096)
                    elif self._ends(key.data):
                        selector.unregister(key.fileobj)
                        watched.discard(key.data.number)
                        self._forget(key.data)

    def _ends(self, episode: _Episode) -> bool:
        try:
            piece = episode.channel.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        episode.received += piece
        return not piece

    def _forget(self, episode: _Episode) -> None:
        with self._lock:
            del self._episodes[episode.number]
        episode.channel.close()
        self._pool.submit(self._take, episode)

    def _take(self, episode: _Episode) -> None:
        data = bytes(episode.received)
        if len(data) < LENGTH.size or len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]:
            end_by_key(episode.key)
            ended = AgentExit(None, False, 0.0, problem="its supervisor was killed", outside=self._namespaces)
        else:
            message = json.loads(data[LENGTH.size :])
            answer: str | None = message["answer"]
            stdout, stderr = (base64.b64decode(message[name]).decode(errors="replace") for name in ("stdout", "stderr"))
            ended = AgentExit(
                code=message["code"],
                timed_out=message["timed_out"],
                seconds=message["seconds"],
                answer=stdout if self._agent.spec.answer == "stdout" else answer and encodable(answer),
                stdout=stdout,
                stderr=stderr,
                problem=encodable(message["problem"]),
            )
        self._hand_over(episode.number, episode.folder, ended)

    def _hand_over(self, number: int, folder: Folder, ended: AgentExit) -> None:
        try:
            if not self._closed:
                files, omitted = folder.changed()
                ended = replace(ended, files=files, files_omitted=omitted)
            folder.remove()
            if not self._closed:
                self._ended(number, ended)
        except Exception:
            _LOG.exception("the end of agent %d cannot be handed over", number)


def _variables(home: str, temporary: str) -> dict[str, str]:
    """Returns the variables that every program gets, and no other of this process."""
    return {"PATH": search_path(), "LANG": os.environ.get("LANG", "C.UTF-8"), "HOME": home, "TMPDIR": temporary}


def doors(access: Access) -> dict[str, str]:
    """Returns the variables by which programs find the policy."""
    return {
        "OPENAI_BASE_URL": f"{access.url}/v1",
        "OPENAI_API_KEY": access.key,
        "OPENAI_MODEL": access.model,
        "ANTHROPIC_BASE_URL": access.url,
        "ANTHROPIC_API_KEY": access.key,
        "ANTHROPIC_MODEL": access.model,
    }


@functools.lru_cache(64)
def _entries(paths: tuple[str, ...], hidden: str) -> list[str]:
    """Returns the entries directly below one of `PLACES` that are, or lead to, one of these paths."""
    entries: dict[str, None] = {}
    for path in paths:
        for each in (os.path.normpath(path), os.path.realpath(path)):
            for place in PLACES:
                name = each.removeprefix(f"{place}/").partition("/")[0]
                entry = f"{place}/{name}"
                below = each.startswith(f"{place}/") and not f"{hidden}/".startswith(f"{entry}/")
                if below and name not in OWN and Path(entry).exists():
                    entries[entry] = None
    return list(entries)
