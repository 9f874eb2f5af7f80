"""Starts the processes that train together on nodes of a cluster, by Ray Train, which ends all when one fails."""

from __future__ import annotations

import importlib
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from grpo.core.cluster.ray_cluster import Node


class Ranks:
    """Starts the processes; they run until `running` says otherwise, or the connection with the cluster ends.

    `function`: "module:function", importable on each node; takes `settings`. `settings`: plain values, and objects of
    `Cluster.host`. `nodes`: where each process is to run, in the order of their ranks. `gpus`: whether each has a GPU.
    `error`: what ended them, or None.
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
    module, _, name = config["function"].partition(":")
    getattr(importlib.import_module(module), name)(config["settings"])
