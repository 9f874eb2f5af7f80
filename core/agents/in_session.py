"""Runs agents inside the session of their episode, whose environment grades what they leave.

The program starts in the session's working directory and reaches the gateway and nothing else. When it ends, every
process of the session is killed, and then the environment is asked for its last step. A session that breaks is a
failure of the episode: nothing that runs in it can break it.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import posixpath
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import grpo
from grpo.core.agents.folder import LARGEST_FILE, MOST_BYTES, MOST_FILES
from grpo.core.agents.launcher import packed_agent
from grpo.core.agents.program import AgentExit, task_of
from grpo.core.agents.runner import doors
from grpo.core.agents.supervisor import KEPT
from grpo.core.env.episodes import Episode
from grpo.core.env.step import take_step
from grpo.core.env.threads import Call, EnvThreads, Raised
from grpo.core.scoring.outcome import explain
from grpo.core.text.printable import encodable
from grpo.plugins._spec.binding import BoundAgent, BoundEnv
from grpo.plugins.agents import Access, AgentTask, Command, package_of, search_path
from grpo.plugins.errors import GrpoError, PluginError, SessionError
from grpo.plugins.exit_guard import raise_on_exit
from grpo.plugins.session import Process, Session

Ended = Callable[[AgentExit], None]
_OWN = ".grpo-agent"  # in HOME: what a Python agent is given, and its answer
_MARK = f"{_OWN}/start"  # a file that is older than what the agent changes
_FILES = ["find", ".", "-xdev", "-type", "f"]
_SECONDS = 60.0  # for a list of files
_LEAVING = 10.0  # for all sessions to close, at the end of a run
_INSIDE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from grpo.core.agents.launcher import play_once; play_once(sys.argv[2])"
)


class SessionPrograms:
    """Runs agents in sessions of these environments, each in a thread.

    `seconds`: the time limit of one call of an environment. `hidden`: paths that agents must not see.
    """

    def __init__(self, agent: BoundAgent, envs: Sequence[BoundEnv], seconds: float, hidden: Sequence[str] = ()) -> None:
        self._agent, self._seconds, self._hidden = agent, seconds, hidden
        self._envs = {env.name: env for env in envs}
        self._lock = threading.Lock()
        self._running: dict[int, _Program] = {}

    def takes(self, episode: Episode) -> bool:
        return episode.env in self._envs

    def start(self, number: int, episode: Episode, access: Access, ended: Ended) -> None:
        """Starts the agent of an episode; a failure to start is reported as any end is."""
        program = _Program(self._agent, self._envs[episode.env], episode, access, self._seconds, self._hidden)
        with self._lock:
            self._running[number] = program

        def play() -> None:
            raise_on_exit()
            left = program.play()
            with self._lock:
                del self._running[number]
            ended(left)

        program.thread = threading.Thread(target=play, name=f"grpo-session-{number}", daemon=True)
        program.thread.start()

    def kill(self, number: int) -> None:
        """Ends an agent, if it still runs; it is graded as any other."""
        with self._lock:
            program = self._running.get(number)
        if program is not None:
            program.end()

    def close(self) -> None:
        """Ends all agents; returns when their sessions are closed, or an environment takes too long over it."""
        with self._lock:
            programs = list(self._running.values())
        for program in programs:
            program.end()
        until = time.monotonic() + _LEAVING
        for program in programs:
            program.thread.join(max(0.0, until - time.monotonic()))


class _Program:
    def __init__(
        self, agent: BoundAgent, env: BoundEnv, episode: Episode, access: Access, seconds: float, hidden: Sequence[str]
    ) -> None:
        self._agent, self._env, self._episode, self._access = agent, env, episode, access
        self._seconds, self._hidden = seconds, hidden
        self._ending = threading.Event()
        self._process: Process | None = None
        self.thread = threading.Thread()

    def end(self) -> None:
        self._ending.set()
        if self._process is not None:
            self._process.kill()

    def play(self) -> AgentExit:
        began = time.monotonic()
        with EnvThreads(self._env.make, seconds=self._env.call_limit(self._seconds)) as envs:

            def ask(call: Call) -> Any:
                answer = envs.call({0: call})[0]
                if isinstance(answer, Raised):
                    raise PluginError(f"env '{self._env.name}' failed: {answer.explained()}")
                return answer

            try:
                session, directory = ask(self._open)
                left = self._run(session, directory)
                session.stop()
                left = replace(left, seconds=time.monotonic() - began, answer=self._answer(session, left))
                return replace(left, graded=ask(partial(take_step, left.answer or "")))
            except BaseException as error:  # also an agent's own code that exits
                problem = encodable(str(error) if isinstance(error, GrpoError) else explain(error))
                return AgentExit(None, False, time.monotonic() - began, problem=problem, outside=True)

    def _open(self, env: Any) -> tuple[Session, str]:
        """Starts the episode and returns its session with the folder that programs begin in."""
        env.reset(**deepcopy(dict(self._episode.reset)))
        inner = getattr(env, "unwrapped", env)
        port = urlsplit(self._access.url).port or 80
        reach = {port: f"127.0.0.1:{port}"}
        session: Session = inner.open_session(reach=reach, shared=_needed(self._agent), hidden=self._hidden)
        return session, getattr(inner, "working_directory", "") or session.directory

    def _run(self, session: Session, directory: str) -> AgentExit:
        task = replace(task_of(self._episode), directory=directory, home=session.home)
        spec = self._agent.spec
        command = self._agent.command(task, self._access) if spec.command else self._python(session, task)
        for path, text in {**task.files, **command.files}.items():
            place = path if path.startswith("~/") else posixpath.join(directory, path)
            session.write(place, text.encode("utf-8", "surrogatepass"))
        changed = ChangedFiles(session, directory)
        variables = {"PATH": search_path(), **doors(self._access), **spec.environment, **command.environment}
        try:
            process = session.start([*command.argv], env=variables, directory=directory)
        except SessionError as error:
            return AgentExit(None, False, 0.0, problem=str(error))
        self._process = process
        try:
            if self._ending.is_set():  # it was to end before it had begun
                process.kill()
            tails = [_Tail(stream) for stream in (process.stdout, process.stderr)]
            with contextlib.suppress(OSError):  # it does not read
                process.stdin.write(command.stdin.encode("utf-8", "surrogatepass"))
            process.stdin.close()
            code = process.wait()
            session.stop()  # else what it left in the background would keep its streams open
            stdout, stderr = (tail.text() for tail in tails)
            files, omitted = changed.read()
            return AgentExit(code, False, 0.0, stdout=stdout, stderr=stderr, files=files, files_omitted=omitted)
        finally:
            self._process = None
            process.close()

    def _python(self, session: Session, task: AgentTask) -> Command:
        plan = {"task": asdict(task), "access": asdict(self._access), "modules": [*self._agent.spec.modules]}
        session.write(f"~/{_OWN}/agent", packed_agent(self._agent))
        session.write(f"~/{_OWN}/plan", json.dumps(plan).encode())
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100
        return Command([sys.executable, "-P", "-c", _INSIDE, path, f"{session.home}/{_OWN}"])

    def _answer(self, session: Session, left: AgentExit) -> str | None:
        if self._agent.spec.answer == "stdout":
            return left.stdout
        if self._agent.spec.command or left.code != 0:
            return None
        try:
            answer = json.loads(session.read(f"~/{_OWN}/answer"))["answer"]
        except (SessionError, ValueError, TypeError, LookupError, RecursionError, MemoryError):
            return None
        return encodable(answer) if isinstance(answer, str) else None


class _Tail:
    """Reads a stream to its end in a thread and keeps the last of it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._text = b""
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        self._thread.join()
        return self._text.decode(errors="replace")

    def _read(self) -> None:
        while piece := self._stream.read(KEPT):
            self._text = (self._text + piece)[-KEPT:]


def _needed(agent: BoundAgent) -> list[str]:
    """Returns the paths that an agent's program needs; of a script the file alone: beside it may be graders."""
    words = [word for value in agent.options.values() if isinstance(value, str) for word in value.split()]
    programs = (shutil.which(name, path=search_path()) for name in (*agent.spec.programs, *words) if os.sep not in name)
    folders = [*search_path().split(os.pathsep), sys.prefix, sys.base_prefix]
    folders += [package_of(Path(program).resolve()) for program in programs if program]
    paths = [*folders, *agent.files, *(os.path.abspath(word) for word in words if Path(word).is_file())]  # noqa: PTH100
    if not agent.spec.command:
        source = inspect.getsourcefile(inspect.unwrap(agent.spec.function))
        own = [str(part.resolve()) for part in Path(grpo.__file__).parent.iterdir()]  # links, in a checkout
        imports = [entry for entry in sys.path if entry and Path(entry).resolve() != Path.cwd()]
        paths += [str(Path(grpo.__file__).parent), *own, *imports, *([source] if source else [])]
    return [path for path in dict.fromkeys(paths) if Path(path).is_absolute() and Path(path).exists() and path != "/"]


class ChangedFiles:
    """What changes in a folder of a session from now on."""

    def __init__(self, session: Session, directory: str) -> None:
        self._session, self._directory = session, directory
        session.write(f"~/{_MARK}", b"")
        self._before = self._listed()

    def read(self) -> tuple[dict[str, str | None], int]:
        """Returns path to text (None: it was deleted), and how many were over the limits. Raises SessionLost."""
        there = self._listed()
        changed: dict[str, str | None] = dict.fromkeys(sorted(self._before - there)[:MOST_FILES])
        small = self._listed("-size", f"-{LARGEST_FILE // 1024 + 1}k")
        omitted = size = 0
        for path in sorted(self._listed("-cnewer", f"{self._session.home}/{_MARK}") | (there - self._before)):
            room = len(changed) < MOST_FILES and size <= MOST_BYTES - LARGEST_FILE
            text = self._text(path) if room and path in small else None
            if text is None:
                omitted += 1
            else:
                changed[path] = text
                size += len(text)
        return changed, omitted

    def _listed(self, *conditions: str) -> set[str]:
        listing = self._session.run([*_FILES, *conditions, "-print0"], timeout=_SECONDS, directory=self._directory)
        names = listing.stdout.decode(errors="backslashreplace").split("\0")[:-1]  # behind the limit one may be cut
        return {name.removeprefix("./") for name in names}

    def _text(self, path: str) -> str | None:
        try:
            return self._session.read(f"{self._directory}/{path}").decode(errors="replace")
        except SessionError:  # it may not be read, or has holes
            return None
