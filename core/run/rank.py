"""One process of a run on a cluster: settings in; the code of `grpo run` runs in it, and its desk hears of it.

`Preflight` is the same before it: it decides on the node of the first process whether the run can start at all.
"""

from __future__ import annotations

import json
import os
import pickle
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from grpo.core.cluster.ray_cluster import NodeLost
from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.env.processes import stepping_elsewhere
from grpo.core.run.desk import POLL, Asks, DeskProgress
from grpo.core.scoring.executors import scoring_elsewhere
from grpo.core.scoring.nodes.pool import NodePool
from grpo.core.train.stop import ask_all
from grpo.plugins.errors import GrpoError
from grpo.plugins.host import Host

FUNCTION = "grpo.core.run.rank:train"
PREFLIGHT = "grpo.core.run.rank:Preflight"


def train(settings: Mapping[str, Any]) -> None:
    """Runs one of the processes that train together, in whatever thread it is called.

    Args:
        settings: `config` as JSON, or `resume` and `steps`; `desk`; `scorers`, each with its number of processes;
            `envs`, the processes that step environments; `variables` of the environment.
    """
    from grpo.core.record.versions import hush_libraries
    from grpo.core.run.job import resume, start
    from grpo.core.run.progress import Silent

    os.environ.update(settings["variables"])
    hush_libraries()
    desk: Asks = settings["desk"]
    progress = DeskProgress(desk) if os.environ.get("RANK", "0") == "0" else Silent()
    pool = NodePool(settings["scorers"])
    try:
        with _stopped_by(desk), scoring_elsewhere(pool), stepping_elsewhere(settings["envs"]):
            if settings["resume"] is not None:
                summary = resume(Path(settings["resume"]), Host.discover(), progress, settings["steps"])
            else:
                summary = start(parse_config(json.loads(settings["config"])), Host.discover(), progress)
    except BaseException as error:
        if not isinstance(error, SystemExit):  # another process told of it
            told = str(error) if isinstance(error, GrpoError) else traceback.format_exc()
            desk.ask("tell", pickle.dumps(("failed", (type(error).__name__, told)))).result()
        raise
    finally:
        pool.close()
    if isinstance(progress, DeskProgress):
        desk.ask("tell", pickle.dumps(("summary", (summary,)))).result()


class Preflight:
    """Plans a run on the node of its first process, where its files and its GPU are.

    Args:
        processes: how many train together.
        variables: of the environment.
    """

    def __init__(self, processes: int, variables: Mapping[str, str]) -> None:
        os.environ.update({**variables, "WORLD_SIZE": str(processes)})

    def plan(self, message: bytes) -> bytes:
        """Returns the name of a run, and why it cannot start or ""; and whether the fault is the user's."""
        from grpo.core.planning.decide import make_plan

        try:
            return json.dumps([make_plan(parse_config(json.loads(message)), Host.discover()).name, ""]).encode()
        except GrpoError as error:
            return json.dumps(["", str(error)]).encode()


def config_text(config: RunConfig) -> str:
    """Returns a configuration as it travels."""
    return config.model_dump_json()


@contextmanager
def _stopped_by(desk: Asks) -> Iterator[None]:
    """Asks for a stop here each time that it was asked for at the desk."""
    over = threading.Event()

    def watch() -> None:
        heard = 0
        while not over.wait(POLL):
            with suppress(NodeLost):  # the command is gone, and the cluster ends this process
                asked = json.loads(desk.ask("stops").result())
                for _ in range(asked - heard):
                    ask_all()
                heard = asked

    threading.Thread(target=watch, name="grpo-stop", daemon=True).start()
    try:
        yield
    finally:
        over.set()
