"""Plays an environment in a process of its own.

One `ForkServer` per taskset starts the process that loads it; each environment takes a fork of that. A fork that
crashes, fills its memory or does not answer in time fails only its own rollout.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import json
import os
import pickle
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium.error import ResetNeeded

from grpo.envs.isolated.child import ASK, FORK, KILL, NUMBER, ORDER
from grpo.envs.text.text_env import TextEnv
from grpo.plugins import errors
from grpo.plugins.child_process import ChildProcess, receive_exactly, receive_message, send_message
from grpo.plugins.errors import PluginError

LOADING = 300.0  # seconds
_ENDING = 5.0
_BUSY = 0.2  # of the time on the clock: what waits for something computes next to nothing
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_KEPT = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NLTK_DATA"),
    *("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_HUB_OFFLINE"),
)


class ProcessEnded(RuntimeError):
    """The process of an environment ended while it was at work; `by_itself`: not killed from outside."""

    def __init__(self, message: str, *, by_itself: bool) -> None:
        super().__init__(message)
        self.by_itself = by_itself


class TookTooLong(TimeoutError):
    """The process of an environment was ended at its time limit; `busy`: it computed and did not wait."""

    def __init__(self, message: str, *, busy: bool) -> None:
        super().__init__(message)
        self.busy = busy


class ForkServer:
    """The process that loads what the environments of one taskset share; safe in threads.

    `factory`: module and name of a function; with `options`, it returns a function that makes an environment.
    `variables`: names of environment variables that it gets beside the usual harmless ones; `environment`: further ones
    with values. `memory`: bytes of private memory of each environment's process.
    """

    def __init__(
        self,
        name: str,
        factory: tuple[str, str],
        options: Mapping[str, Any],
        variables: Sequence[str],
        memory: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._wanted = (*factory, dict(options), memory)
        self._variables = tuple(variables)
        self._environment = {**_THREADS, **(environment or {})}
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        atexit.register(self.close)

    def fork(self) -> tuple[int, socket.socket]:
        """Returns a new process and the socket to it. Raises PluginError."""
        with self._lock:
            control = self._started()
            ours, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(control, [ORDER.pack(FORK, 0)], [theirs.fileno()])
            return NUMBER.unpack(receive_exactly(control, NUMBER.size))[0], ours

    def kill(self, number: int) -> None:
        with self._lock:
            if self._child is not None and not self._child.gone():
                self._child.channel.sendall(ORDER.pack(KILL, number))

    def ending(self, number: int) -> int:
        """Returns the exit code (`os.waitstatus_to_exitcode`) of a process that has closed its socket."""
        with self._lock:
            if self._child is None or self._child.gone():
                return -signal.SIGKILL
            self._child.channel.sendall(ORDER.pack(ASK, number))
            return os.waitstatus_to_exitcode(NUMBER.unpack(receive_exactly(self._child.channel, NUMBER.size))[0])

    def close(self) -> None:
        """Ends the process and all that it forked; the next call starts another."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._child is not None:
            self._child.end(_ENDING)
            self._child = None

    def _started(self) -> socket.socket:
        if self._child is not None and not self._child.gone():
            return self._child.channel
        self._end()
        kept = {name: os.environ[name] for name in (*_KEPT, *self._variables) if name in os.environ}
        self._child = ChildProcess("grpo.envs.isolated.child", environment={**self._environment, **kept})
        channel = self._child.channel
        channel.settimeout(LOADING)
        try:
            send_message(channel, pickle.dumps(self._wanted))
            answer = json.loads(receive_message(channel))
        except OSError as error:
            answer = {"raised": ["it did not start", str(error)]}
        if "raised" in answer:
            self._end()
            raise PluginError(
                f"{self.name} cannot be loaded in a process of its own: {': '.join(answer['raised'])}. It gets no "
                "environment variables of this one but harmless ones; name those that it needs with the option "
                "variables=NAME+NAME."
            )
        channel.settimeout(None)
        return channel


class IsolatedEnv(TextEnv):
    """An environment of texts in a fork of `fork_server`, which is ended when a call takes longer than `seconds`."""

    def __init__(self, fork_server: ForkServer, seconds: float) -> None:
        super().__init__()
        self._fork_server = fork_server
        self._seconds = seconds
        self._number = 0
        self._channel: socket.socket | None = None
        self._one_at_a_time = threading.Lock()

    def ask(self, method: str, *args: Any, **options: Any) -> Any:
        """Calls a method over there; what it raises is raised here, or TookTooLong, or ProcessEnded."""
        with self._one_at_a_time:
            if self._channel is None:
                self._number, self._channel = self._fork_server.fork()
            self._channel.settimeout(self._seconds)
            try:
                send_message(self._channel, pickle.dumps((method, args, options)))
                answer = json.loads(receive_message(self._channel))
            except TimeoutError:
                busy = _computed(self._number) > _BUSY * self._seconds
                self._end()
                raise TookTooLong(
                    f"{self._fork_server.name}: no answer within {self._seconds:g} s", busy=busy
                ) from None
            except OSError:
                self._channel.close()
                self._channel = None
                code = self._fork_server.ending(self._number)
                raise ProcessEnded(
                    f"{self._fork_server.name}: the process of this rollout ended with status {code} while it was at "
                    "work",
                    by_itself=-code not in _FROM_OUTSIDE,
                ) from None
        if "raised" in answer:
            raise _error(*answer["raised"])
        return answer["value"]

    def close(self) -> None:
        with self._one_at_a_time:
            self._end()

    def __del__(self) -> None:
        channel = getattr(self, "_channel", None)
        if channel is not None:
            channel.close()  # the process then ends by itself

    @property
    def running(self) -> bool:
        return self._channel is not None

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._fork_server.kill(self._number)


def _computed(number: int) -> float:
    """Seconds of processor time; 0 if unknown."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _error(name: str, message: str) -> Exception:
    known = ResetNeeded if name == "ResetNeeded" else getattr(builtins, name, None) or getattr(errors, name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        with contextlib.suppress(TypeError):  # it takes other arguments
            return known(message)
    return RuntimeError(f"{name}: {message}")
