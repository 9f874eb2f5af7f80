"""Connects to a Ray cluster, lists its nodes, and starts objects and training processes on them. The only door to ray.

An object is named by its module and class, made by an actor of its own, and spoken to in bytes, so Ray pickles nothing
but names, numbers and bytes. A cluster without a token is refused: who reached its ports could run code on every node.
"""

from __future__ import annotations

import os
import pkgutil
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from grpo.plugins.errors import RunError, UsageError

MODE = "RAY_AUTH_MODE"
REACH = 10.0  # seconds to answer at the address of a cluster
CALLS = 16  # that one object answers side by side
HOW_TO_START = (
    "On the first machine: export RAY_AUTH_MODE=token; ray get-auth-token --generate; ray start --head. On every other "
    "one, with the same token in ~/.ray/auth_token: export RAY_AUTH_MODE=token; ray start --address=FIRST:6379."
)


class NodeLost(RunError):
    """An object does not answer, because its process or its node is gone; `for_good`: it never will again."""

    def __init__(self, words: str, for_good: bool) -> None:
        super().__init__(words)
        self.for_good = for_good


class RemoteObject(Protocol):
    """An object that answers messages, on a node of the cluster or in a process of this machine."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    def ask(self, method: str, message: bytes = b"") -> Future[bytes]:
        """Calls a method; the future raises `NodeLost` where the object is gone."""


@dataclass(frozen=True, slots=True)
class Node:
    id: str  # of Ray
    address: str  # its name in the network
    # cpus, gpus: that the cluster may use there
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Hosted:
    """An object on a node; it can be handed on to other processes of the cluster."""

    node: Node
    actor: Any

    @property
    def name(self) -> str:
        return f"node {self.node.address}"

    def ask(self, method: str, message: bytes = b"") -> Future[bytes]:
        """Calls a method of the object with bytes; the future raises `NodeLost`, or what the method raised."""
        answer: Future[bytes] = Future()
        answer.set_running_or_notify_cancel()

        def done(future: Future[bytes]) -> None:
            error = future.exception()
            if error is None:
                answer.set_result(future.result())
            else:
                answer.set_exception(_explained(error, self.node))

        try:
            self.actor.call.remote(method, message).future().add_done_callback(done)
        except Exception as error:  # the cluster is gone
            answer.set_exception(_explained(error, self.node))
        return answer

    def end(self) -> None:
        import ray

        ray.kill(self.actor)


class Cluster:
    """A connection with a cluster; use it as a context manager.

    `address`: HOST:PORT; "": that of RAY_ADDRESS, or the cluster on this machine. Raises UsageError without Ray or such
    a cluster, or if it asks for no token.
    """

    def __init__(self, address: str) -> None:
        os.environ.setdefault(MODE, "token")  # read when Ray is loaded
        self._actors: list[Any] = []  # one whose last handle is gone would be ended by Ray
        try:
            import ray
        except ImportError:
            raise UsageError(
                "--on ray needs Ray, which is not installed. Install it: pip install 'grpo-kit[ray]'"
            ) from None
        self._ray: Any = ray
        _refuse_unreachable(address or os.environ.get("RAY_ADDRESS", ""))
        from ray.exceptions import AuthenticationError

        try:
            self._ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
        except AuthenticationError as error:
            raise UsageError(f"the Ray cluster wants a token that is not here: {error}. {HOW_TO_START}") from None
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise UsageError(
                f"no Ray cluster at {address or 'this machine'}, or it refused the token of this one: {reason}. "
                f"{HOW_TO_START}"
            ) from None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *raised: object) -> None:
        self._ray.shutdown()

    @property
    def here(self) -> str:
        """The id of the node of this process."""
        node_id: str = self._ray.get_runtime_context().get_node_id()
        return node_id

    def nodes(self) -> list[Node]:
        """Returns the nodes that live, this process's first."""
        nodes = [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                int(node["Resources"].get("CPU", 0)),
                int(node["Resources"].get("GPU", 0)),
            )
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        return sorted(nodes, key=lambda node: (node.id != self.here, node.address, node.id))

    def host(
        self,
        kind: str,
        settings: Mapping[str, Any],
        node: Node,
        *,
        cpus: float = 0,
        gpus: float = 0,
        restarts: int = 0,
        seconds: float = 120.0,
    ) -> Hosted:
        """Makes an object on a node, which lives until it is ended or this connection is.

        `kind`: "module:Class", importable there. `settings`: the arguments of the class, JSON values. `restarts`: how
        often it is made again after its process has died. Raises NodeLost if the node is gone; UsageError if it lacks
        this package, asks for no token, or has nothing free in time.
        """
        from ray.exceptions import ActorUnschedulableError, GetTimeoutError, RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = (
            self._ray.remote(_Host)
            .options(
                num_cpus=cpus,
                num_gpus=gpus,
                max_restarts=restarts,
                max_concurrency=CALLS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote(kind, dict(settings))
        )
        try:
            guarded = self._ray.get(actor.guarded.remote(), timeout=seconds)
        except GetTimeoutError:
            self._ray.kill(actor)
            raise UsageError(
                f"node {node.address} had no {cpus:g} processors and {gpus:g} GPUs free for {seconds:g} s. Wait for "
                "the other jobs of the cluster, or ask for less."
            ) from None
        except ActorUnschedulableError:
            raise NodeLost(f"node {node.address} is lost", for_good=True) from None
        except RayError as error:
            raise UsageError(
                f"node {node.address} cannot run this: {last_line(error)}. Install the same grpo-kit and Python there "
                "as here."
            ) from None
        if not guarded and os.environ.get(MODE) == "token":
            self._ray.kill(actor)
            raise UsageError(
                f"node {node.address} requires no token: anybody who reaches its ports can run code there. "
                f"{HOW_TO_START} In a private network: export RAY_AUTH_MODE=disabled, here too."
            )
        self._actors.append(actor)
        return Hosted(node, actor)


class _Host:
    def __init__(self, kind: str, settings: dict[str, Any]) -> None:
        self._object = pkgutil.resolve_name(kind)(**settings)

    def call(self, method: str, message: bytes) -> bytes:
        answer: bytes = getattr(self._object, method)(message)
        return answer

    def guarded(self) -> bool:
        from ray import _raylet

        raylet: Any = _raylet
        return bool(raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN)


def _refuse_unreachable(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not address or address == "auto":
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot reach a Ray cluster at {address}: {error}. {HOW_TO_START}") from None


def _explained(error: BaseException, node: Node) -> BaseException:
    from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

    if isinstance(error, RayTaskError):
        return RunError(f"node {node.address}: {last_line(error)}")
    if isinstance(error, RayError):
        return NodeLost(f"node {node.address} is lost", for_good=not isinstance(error, ActorUnavailableError))
    return NodeLost(f"node {node.address} is lost: {error}", for_good=True)


def last_line(error: BaseException | None) -> str:
    """Returns the last line of an error, which is what went wrong there, or its kind."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".")


class Ranks:
    """Starts the processes; they run until `running` says otherwise, or the connection with the cluster ends.

    `function`: "module:function", importable on each node; takes `settings`: plain values, and objects of
    `Cluster.host`. `nodes`: of each process, in the order of their ranks. `gpus`: whether each has a GPU. `error`: what
    ended them, or None.
    """

    def __init__(self, function: str, settings: Mapping[str, Any], nodes: Sequence[Node], *, gpus: bool) -> None:
        self.error: BaseException | None = None
        self._arguments = (function, dict(settings), list(nodes), gpus)
        self._thread = threading.Thread(target=self._run, name="grpo-ranks", daemon=True)
        self._thread.start()

    def running(self, seconds: float) -> bool:
        """Waits so long for their end; returns whether they still run."""
        self._thread.join(seconds)
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="grpo-ray-", ignore_cleanup_errors=True) as folder:
                _fit(*self._arguments, folder)
        except BaseException as error:
            self.error = error


def _fit(function: str, settings: dict[str, Any], nodes: list[Node], gpus: bool, folder: str) -> None:
    os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"
    os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    trainer = TorchTrainer(
        _call,
        train_loop_config={"function": function, "settings": settings},
        torch_config=TorchConfig(backend="nccl" if gpus else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=len(nodes),
            use_gpu=gpus,
            resources_per_worker={"CPU": 1, **({"GPU": 1} if gpus else {})},
            label_selector=[{"ray.io/node-id": node.id} for node in nodes],
        ),
        run_config=RunConfig(
            name="run",
            storage_path=folder,  # nothing but a marker is written there
            failure_config=FailureConfig(max_failures=0),
        ),
    )
    trainer.fit()


def _call(config: dict[str, Any]) -> None:
    pkgutil.resolve_name(config["function"])(config["settings"])
