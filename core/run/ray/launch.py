"""Starts a run on a Ray cluster and writes the same run directory as on one machine.

Theory of operation. The command places everything and has the node of the first process plan the run. Then it starts
the rollout servers, the scoring pool and the training processes, which run the code of `grpo run`. Events come by a
mailbox and are shown here. Ctrl-C asks for a stop there; a second one ends the connection and every process.
"""

from __future__ import annotations

import json
import os
import pickle
import secrets
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpo.core.cluster.ray_cluster import Cluster, Hosted, NodeLost, Ranks, last_line
from grpo.core.config.schema import RunConfig
from grpo.core.display.progress import Progress
from grpo.core.env import processes
from grpo.core.rollout.server import placed
from grpo.core.rollout.server.capabilities import TOKEN
from grpo.core.run.begin import absolute_paths, unused_path
from grpo.core.run.endings import RunSummary
from grpo.core.run.ray import download, rank
from grpo.core.run.ray import mailbox as mailboxes
from grpo.core.run.ray.placement import Asked, Placement, place
from grpo.core.scoring.nodes import pool as scoring
from grpo.core.text.printable import counted
from grpo.core.train.stop import StopRequest
from grpo.plugins.errors import RunError, UsageError

REACH = 30.0  # seconds to reach the machine of the first process, once the run is over
LOOK = 0.5  # seconds between two looks at what the run tells
GRACE = 60.0  # seconds for the other processes to end after one has told why it failed
RESTARTS = 100  # of the process that scores on a node
GIVEN = ("GRPO_", "HF_", "OMP_", "OPENAI_", "TRANSFORMERS_", "WANDB_")  # variables that go along with a run


def start_on_ray(config: RunConfig, address: str, asked: Asked, progress: Progress) -> RunSummary:
    """Runs a configuration on a cluster, as `job.start`. Raises UsageError if it does not fit the cluster, too."""
    config = _served(absolute_paths(config), asked)
    with Cluster(address) as cluster:
        placement = place(cluster.nodes(), asked)
        planner = _planner(cluster, placement)
        name, commands = _refused(planner, placement, config)
        planner.end()
        path = Path(config.out or unused_path(name)).expanduser().absolute()
        if urls := _servers(cluster, placement, commands, progress):
            config = rank.with_rollout(config, server_url=",".join(urls))
        text = config.model_copy(update={"out": path}).model_dump_json()
        return _run(cluster, placement, config, path, progress, {"config": text, "resume": None, "steps": None})


def resume_on_ray(
    config: RunConfig, path: Path, steps: int | None, address: str, asked: Asked, progress: Progress
) -> RunSummary:
    """Continues a run of a configuration on a cluster; all else is as with `job.resume` and `start_on_ray`."""
    path, config = path.expanduser().absolute(), _served(config, asked)
    with Cluster(address) as cluster:
        placement = place(cluster.nodes(), asked)
        if placement.servers:
            planner = _planner(cluster, placement)
            _, commands = _refused(planner, placement, config, fresh=False)
            urls = ",".join(_servers(cluster, placement, commands, progress))
            planner.ask("readdress", json.dumps([str(path), urls]).encode()).result()
            planner.end()
        return _run(cluster, placement, config, path, progress, {"config": None, "resume": str(path), "steps": steps})


def planned_on_ray(config: RunConfig, address: str, asked: Asked) -> list[str]:
    """Says what would run where, once the cluster has planned the run."""
    with Cluster(address) as cluster:
        placement = place(cluster.nodes(), asked)
        _refused(_planner(cluster, placement), placement, _served(absolute_paths(config), asked))
        return placement.lines()


def _served(config: RunConfig, asked: Asked) -> RunConfig:
    if not asked.servers:
        return config
    if config.rollout.backend == "vllm":
        raise UsageError("--servers starts rollout servers, and --rollout vllm samples without. Leave one of them out.")
    return rank.with_rollout(config, backend="vllm-server")


def _planner(cluster: Cluster, placement: Placement) -> Hosted:
    settings = {"processes": len(placement.ranks), "variables": _variables()}
    return cluster.host(rank.PREFLIGHT, settings, placement.ranks[0], gpus=float(placement.gpus))


def _refused(planner: Hosted, placement: Placement, config: RunConfig, *, fresh: bool = True) -> tuple[str, list[str]]:
    machines = [node.address for node in placement.servers]
    message = json.dumps([config.model_dump_json(), machines, fresh]).encode()
    name, commands, problem = json.loads(planner.ask("plan", message).result())
    if problem:
        raise UsageError(problem)
    return name, commands


def _servers(cluster: Cluster, placement: Placement, commands: Sequence[str], progress: Progress) -> list[str]:
    os.environ.setdefault(TOKEN, secrets.token_hex(16))  # goes along with the run's variables
    hosted = [
        cluster.host(
            placed.KIND, {"command": command, "token": os.environ[TOKEN]}, node, cpus=1, gpus=float(placement.gpus)
        )
        for node, command in zip(placement.servers, commands, strict=True)
    ]
    if hosted:
        progress.loading(f"the model on {counted(len(hosted), 'rollout server')}")
    return [server.ask("address").result().decode() for server in hosted]


def _run(
    cluster: Cluster, placement: Placement, config: RunConfig, path: Path, progress: Progress, settings: dict[str, Any]
) -> RunSummary:
    for line in placement.lines():
        progress.loading(f"onto {line}")
    here = next((node for node in cluster.nodes() if node.id == cluster.here), placement.ranks[0])
    mailbox = cluster.host(mailboxes.KIND, {}, here)
    scorers: list[tuple[Hosted, int]] = []
    for node, workers in placement.scorers:
        with suppress(NodeLost):  # it was gone before it began
            taken = (placement.ranks + placement.servers).count(node)
            cpus = max(0, min(workers, node.cpus - taken))
            hosted = cluster.host(scoring.KIND, {"workers": workers}, node, cpus=cpus, restarts=RESTARTS)
            scorers.append((hosted, workers))
    hosts = [
        cluster.host(processes.KIND, {}, placement.scorers[n % len(placement.scorers)][0], restarts=RESTARTS)
        for n in range(config.rollout.env_processes)
    ]
    settings = {**settings, "mailbox": mailbox, "scorers": scorers, "envs": hosts, "variables": _variables()}
    stop = StopRequest()
    with stop.listening():
        ranks = Ranks(rank.FUNCTION, settings, placement.ranks, gpus=placement.gpus)
        with stop.finishing_steps():
            shown = _shown(ranks, mailbox, stop, progress)
    summary = next((values[0] for event, values in shown if event == "summary"), None)
    if placement.ranks[0].id != cluster.here:
        with suppress(NodeLost, UsageError):  # its node may be what was lost
            there = cluster.host(download.KIND, {"path": str(path)}, placement.ranks[0], seconds=REACH)
            if download.fetch(there, path):
                progress.loading(f"the run directory came over from {there.name}")
    failures = [values for event, values in shown if event == "failed"]
    if isinstance(summary, RunSummary):
        return summary
    again = f"Continue with: grpo run --resume {shlex.quote(str(path))} --on ray"
    if not failures:
        raise RunError(
            f"a training process was lost, which ended the run: {last_line(ranks.error)}. Its run directory is kept. "
            f"{again}"
        )
    for kind, text in failures:
        if kind == "KeyboardInterrupt":
            raise KeyboardInterrupt
        raise (UsageError if kind.endswith(("UsageError", "OptionError", "NotFound")) else RunError)(text)
    raise AssertionError


def _shown(ranks: Ranks, mailbox: Hosted, stop: StopRequest, progress: Progress) -> list[mailboxes.Event]:
    kept: list[mailboxes.Event] = []
    stopping, until = False, float("inf")
    while True:
        running = ranks.running(LOOK) and time.monotonic() < until
        if stop.asked and not stopping:
            mailbox.ask("stop").result()
            stopping = True
        for event, values in filter(None, map(mailboxes.read, pickle.loads(mailbox.ask("take").result()))):
            if event in mailboxes.ENDS:
                kept.append((event, values))
                until = min(until, time.monotonic() + GRACE)
            else:
                getattr(progress, event)(*values)
        if not running:
            return kept


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(GIVEN)}
