"""Runs one process of a run on a cluster, by the code of `grpo run`; `Preflight` decides whether it can start."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from grpo.core.cluster.ray_cluster import NodeLost, RemoteObject
from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.env.processes import stepping_elsewhere
from grpo.core.record.run_dir import open_run_dir, read_json, write_json
from grpo.core.run.ray.mailbox import POLL, MailboxProgress, written
from grpo.core.scoring.executors import scoring_elsewhere
from grpo.core.scoring.nodes.pool import NodePool
from grpo.core.train.stop import ask_all
from grpo.plugins.errors import GrpoError
from grpo.plugins.host import Host

FUNCTION = "grpo.core.run.ray.rank:train"
PREFLIGHT = "grpo.core.run.ray.rank:Preflight"
Config = TypeVar("Config", bound=RunConfig)


def train(settings: Mapping[str, Any]) -> None:
    """Runs one of the processes that train together, in any thread.

    `settings`: `config` as JSON, or `resume` and `steps`; `mailbox`; `scorers`, each with its number of processes;
    `envs`, the processes that step environments; `variables` of the environment.
    """
    from grpo.core.display.progress import Silent
    from grpo.core.record.versions import silence_libraries
    from grpo.core.run.job import resume, start

    os.environ.update(settings["variables"])
    silence_libraries()
    mailbox: RemoteObject = settings["mailbox"]
    progress = MailboxProgress(mailbox) if os.environ.get("RANK", "0") == "0" else Silent()
    pool = NodePool(settings["scorers"])
    try:
        with _stopped_by(mailbox), scoring_elsewhere(pool.submit), stepping_elsewhere(settings["envs"]):
            if settings["resume"] is not None:
                summary = resume(Path(settings["resume"]), Host.discover(), progress, settings["steps"])
            else:
                summary = start(parse_config(json.loads(settings["config"])), Host.discover(), progress)
    except BaseException as error:
        if not isinstance(error, SystemExit):  # another process told of it
            text = str(error) if isinstance(error, GrpoError) else traceback.format_exc()
            mailbox.ask("tell", written("failed", type(error).__name__, text)).result()
        raise
    finally:
        pool.close()
    if isinstance(progress, MailboxProgress):
        mailbox.ask("tell", written("summary", summary)).result()


def with_rollout(config: Config, **values: str) -> Config:
    """Returns a configuration with other settings of its rollouts."""
    return config.model_copy(update={"rollout": config.rollout.model_copy(update=values)})


class Preflight:
    """Plans a run on the node of its first process, where its files and its GPU are."""

    def __init__(self, processes: int, variables: Mapping[str, str]) -> None:
        os.environ.update({**variables, "WORLD_SIZE": str(processes)})

    def plan(self, message: bytes) -> bytes:
        """Plans a run; returns its name, the command of each server, and why it cannot start or ""."""
        from grpo.core.planning.decide import make_plan
        from grpo.core.rollout.server.capabilities import servers_of

        text, machines, fresh = json.loads(message)
        config = parse_config(json.loads(text))
        if machines:  # nothing listens there yet
            config = with_rollout(config, backend="hf", server_url=",".join(f"http://{each}:0" for each in machines))
        try:
            plan = make_plan(config, Host.discover(), fresh=fresh)
        except GrpoError as error:
            return json.dumps(["", [], str(error)]).encode()
        plan = dataclasses.replace(plan, config=with_rollout(plan.config, backend="vllm-server"))
        return json.dumps([plan.name, [command for _, _, command in servers_of(plan)] if machines else [], ""]).encode()

    def readdress(self, message: bytes) -> bytes:
        """Notes the servers' new addresses in a run directory; in: its path and the addresses."""
        path, urls = json.loads(message)
        run_dir = open_run_dir(Path(path))
        settings: Any = read_json(run_dir.config)
        write_json(run_dir.config, {**settings, "rollout": {**settings["rollout"], "server_url": urls}})
        return b""


@contextmanager
def _stopped_by(mailbox: RemoteObject) -> Iterator[None]:
    over = threading.Event()

    def watch() -> None:
        heard = 0
        while not over.wait(POLL):
            with suppress(NodeLost):  # the command is gone, and the cluster ends this process
                asked = json.loads(mailbox.ask("stops").result())
                for _ in range(asked - heard):
                    ask_all()
                heard = asked

    threading.Thread(target=watch, name="grpo-stop", daemon=True).start()
    try:
        yield
    finally:
        over.set()
