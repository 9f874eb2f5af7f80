"""Steps environments in processes of their own, here or on the nodes of a cluster, as `LocalEnvBatch` does in threads.

A crash or hang costs the rollouts of that process only; it is restarted for the next batch. Calls and answers travel
pickled; an exception travels as its name and its words.
"""

from __future__ import annotations

import inspect
import itertools
import math
import pickle
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import cloudpickle  # type: ignore[import-untyped]

from grpo.core.cluster.local_object import LocalObject
from grpo.core.cluster.ray_cluster import NodeLost, RemoteObject
from grpo.core.env.env_batch import EnvBatch, LocalEnvBatch
from grpo.core.env.episodes import Episode
from grpo.core.env.threads import AT_ONCE, Call, Raised
from grpo.core.env.tools import ToolCall
from grpo.core.scoring.nodes.shipping import place_of
from grpo.core.scoring.workers.transport import Place
from grpo.plugins import errors
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins._spec.signature import written_function
from grpo.plugins.errors import GrpoError
from grpo.plugins.mcp.attach import ServedFactory

KIND = "grpo.core.env.processes:EnvHost"
_LOAD_LIMIT = 120.0  # seconds to start a process and load an environment
_GRACE = 5.0

_elsewhere: ContextVar[Sequence[RemoteObject]] = ContextVar("where processes of environments are", default=())


@contextmanager
def stepping_elsewhere(hosts: Sequence[RemoteObject]) -> Iterator[None]:
    """Makes the environments that are to have processes step in these."""
    before = _elsewhere.set(hosts)
    try:
        yield
    finally:
        _elsewhere.reset(before)


class EnvHost:
    """The inside of a process: the environments of every batch that is being played with it."""

    def __init__(self) -> None:
        self._batches: dict[str, LocalEnvBatch] = {}

    def play(self, message: bytes) -> bytes:
        """Does what one message says, and returns number to answer."""
        batch, verb, given, released, items = pickle.loads(message)
        if verb == "open":
            place, options, seconds = pickle.loads(given)
            self._batches[batch] = LocalEnvBatch(partial(place.resolve(), **options), seconds=seconds).__enter__()
            return b""
        envs = self._batches[batch]
        for number in released:
            envs.release(number)
        if verb == "end":
            self._batches.pop(batch).__exit__(None, None, None)
            return b""
        results = getattr(envs, verb)(items)
        return pickle.dumps({number: _written(result) for number, result in results.items()}, protocol=5)


@dataclass(frozen=True, slots=True)
class _Served(Place):
    inner: Place
    factory: ServedFactory

    def resolve(self) -> Callable[..., Any]:
        return replace(self.factory, make=self.inner.resolve())


def _place_of_factory(factory: Callable[..., Any]) -> Place:
    if isinstance(factory, ServedFactory):
        return _Served(_place_of_factory(factory.make), replace(factory, make=dict))
    return place_of(factory)[0]


class EnvProcesses:
    """Processes that environments are stepped in, for one batch after the other."""

    def __init__(self, env: BoundEnv, count: int) -> None:
        self._place = _place_of_factory(env.spec.factory)
        self._options = dict(env.options)
        self._here: list[LocalObject | None] = [None] * count
        self._numbers = itertools.count()

    def close(self) -> None:
        """Ends the processes of this machine; they also end with this process."""
        for process in self._here:
            if process is not None:
                process.end()

    def played(self, seconds: float) -> RemoteEnvs:
        """Returns the environments of one batch, in the processes that live."""
        hosts = list(_elsewhere.get())
        if not hosts:
            for number, process in enumerate(self._here):
                if process is None or not process.alive:
                    self._here[number] = LocalObject(KIND, {})
            hosts = [process for process in self._here if process is not None]
        given = cloudpickle.dumps((self._place, self._options, seconds))
        return RemoteEnvs(hosts, bytes(given), f"{id(self)}-{next(self._numbers)}", seconds)


class RemoteEnvs:
    """The environments of one batch, split over processes; see `EnvBatch`. `seconds`: the time limit of one call."""

    def __init__(self, hosts: Sequence[RemoteObject], given: bytes, batch: str, seconds: float) -> None:
        self._hosts = list(hosts)
        self._given = given
        self._batch = batch
        self._seconds = seconds
        self._lost: dict[int, Raised] = {}
        self._begun: set[int] = set()
        self._released: dict[int, list[int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        ends = [self._ask(number, "end", {}) for number in self._begun - self._lost.keys()]
        if error is None or isinstance(error, Exception):  # whoever interrupts does not want to wait
            wait(ends, 2 * _GRACE)

    def start(self, episodes: Mapping[int, Episode]) -> dict[int, Any]:
        return self._dealt("start", episodes)

    def call(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        return self._dealt("call", calls)

    def use(self, calls: Mapping[int, ToolCall]) -> dict[int, Any]:
        return self._dealt("use", calls)

    def release(self, number: int) -> None:
        """Has an environment closed, with the next message to its process."""
        self._released.setdefault(number % len(self._hosts), []).append(number)

    def _dealt(self, verb: str, items: Mapping[int, Any]) -> dict[int, Any]:
        shares: dict[int, dict[int, Any]] = {}
        for number, item in items.items():
            shares.setdefault(number % len(self._hosts), {})[number] = item
        if new := shares.keys() - self._begun:
            self._open(new)
        asked = {host: self._ask(host, verb, share) for host, share in shares.items() if host not in self._lost}
        most = max((len(share) for share in shares.values()), default=0)
        wait(asked.values(), math.ceil(most / AT_ONCE) * self._seconds + _GRACE)
        results: dict[int, Any] = {}
        for host, share in shares.items():
            answer = self._lost[host] if host not in asked else self._heard(host, asked[host], self._seconds)
            if isinstance(answer, Raised):
                results |= dict.fromkeys(share, answer)
            else:
                results |= {number: _read(result) for number, result in pickle.loads(answer).items()}
        return {number: results[number] for number in items}

    def _open(self, hosts: Collection[int]) -> None:
        opening = {host: self._ask(host, "open", {}) for host in hosts}
        wait(opening.values(), _LOAD_LIMIT)
        for host, answer in opening.items():
            if isinstance(problem := self._heard(host, answer, _LOAD_LIMIT), Raised):
                self._lost[host] = problem

    def _ask(self, host: int, verb: str, share: Mapping[int, Any]) -> Future[bytes]:
        given = self._given if verb == "open" else b""
        self._begun.add(host)
        message = (self._batch, verb, given, self._released.pop(host, []), dict(share))
        try:
            return self._hosts[host].ask("play", cloudpickle.dumps(message))
        except Exception as error:  # what a row holds cannot be pickled
            refused: Future[bytes] = Future()
            refused.set_exception(error)
            return refused

    def _heard(self, host: int, answer: Future[bytes], seconds: float) -> bytes | Raised:
        """Returns a process's answer within so many seconds, or why there is none, for all of its share."""
        if not answer.done():
            held_up = "an environment of its process held all of them up, so the process was ended"
            self._lost[host] = Raised(RuntimeError(held_up), shared=True)
            with suppress(Exception):
                getattr(self._hosts[host], "end", lambda: None)()
            return Raised(TimeoutError(f"no answer within {seconds:g} s"), shared=True)
        error = answer.exception()
        if isinstance(error, NodeLost):
            self._lost[host] = Raised(RuntimeError(f"{error}, with all environments in it"), shared=True)
            return self._lost[host]
        return answer.result() if error is None else Raised(error)


_shared: weakref.WeakValueDictionary[tuple[str, bytes, int], EnvProcesses] = weakref.WeakValueDictionary()


def place_of_envs(env: BoundEnv, processes: EnvProcesses | None, seconds: float) -> EnvBatch:
    """Returns where the environments of a batch are, each call within so many seconds; use it as a context manager."""
    return LocalEnvBatch(env.make, seconds=seconds) if processes is None else processes.played(seconds)


def starting_place(env: BoundEnv, count: int, seconds: float) -> Callable[[], EnvBatch]:
    """Returns what opens a place to start episodes in before a run: in `count` processes, or threads for 0."""
    return partial(place_of_envs, env, trial_processes(env, count), seconds)


def all_ours(env: BoundEnv) -> bool:
    """Returns whether all code of an environment is built in; a member of a family is not."""
    module = getattr(written_function(inspect.unwrap(env.spec.factory)), "__module__", None) or ""
    return module.startswith("grpo.") and ":" not in env.spec.name


def trial_processes(env: BoundEnv, count: int) -> EnvProcesses | None:
    """Returns the processes that an environment is tried in before a run; None where all of its code is ours."""
    if not all_ours(env) or (count and env.spec.played):
        try:
            return processes_of(env, count or 1)
        except Exception:  # of several kinds: what it needs cannot be pickled
            if count:
                raise
    return None


def processes_of(env: BoundEnv, count: int) -> EnvProcesses | None:
    """Returns the processes of an environment, shared by all its callers; None for none."""
    if not count:
        return None
    key = (env.name, cloudpickle.dumps((dict(env.options), env.servers)), count)
    processes = _shared.get(key)
    if processes is None:
        _shared[key] = processes = EnvProcesses(env, count)
    return processes


def _written(result: Any) -> Any:
    if not isinstance(result, Raised):
        return (True, result)
    try:
        words = str(result.error)
    except Exception:
        words = "(its message cannot be printed)"
    return (False, (type(result.error).__name__, words, isinstance(result.error, GrpoError), result.line))


def _read(written: tuple[bool, Any]) -> Any:
    """Returns an answer that has travelled; an exception is of the same class of our own, or of the same name."""
    whole, value = written
    if whole:
        return value
    name, words, ours, line = value
    if ours and isinstance(known := getattr(errors, name, None), type) and issubclass(known, GrpoError):
        return Raised(known(words))
    return Raised(type(name, (GrpoError if ours else Exception,), {})(words), line=line)
