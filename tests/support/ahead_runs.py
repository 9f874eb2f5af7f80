"""Runs whose batches are sampled ahead by an engine of the test's: settings in, a run directory out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.rollout.draws import drawn_seed, draws
from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.types import OnDone, Sampled, SamplingParams

STEPS = 4

Job = Callable[..., Path]


class Copied(HfRollouts):
    """An engine with weights of its own, as vLLM has: those of the last sync that arrived.

    Args:
        arrives: says of each sync, counted from 0, whether its weights arrive.
    """

    exact = False

    def __init__(self, arrives: Callable[[int, bool], bool] = lambda sync, again: True) -> None:
        super().__init__()
        self._arrives = arrives
        self._copy: Any = None
        self.syncs: list[bool] = []
        self.threads: list[str] = []
        self.before: Callable[[], None] = lambda: None

    def sync(self, model: Any, *, again: bool = False) -> Mapping[str, float]:
        if self._copy is None:
            with torch.random.fork_rng():
                self._copy = type(model)(model.config)
        if self._arrives(len(self.syncs), again):
            self._copy.load_state_dict(model.state_dict())
        self.syncs.append(again)
        return super().sync(self._copy)

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        self.threads.append(threading.current_thread().name)
        self.before()
        if draws() is not torch.default_generator:  # as a server, which is sent a seed
            params = replace(params, keys=tuple(drawn_seed() for _ in prompts))
        return super().generate(prompts, params, on_done)

    def differing(self, model: Any) -> list[str]:
        mine = dict(self._copy.named_parameters())
        return [name for name, p in model.named_parameters() if not mine[name].equal(p)]


@contextmanager
def jobs(tiny_model: Path, vowels: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """While it lasts, a run may have an engine of the test's."""
    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.planning import decide
    from grpo.core.planning import rollout as planning
    from grpo.core.rollout import open as opening
    from grpo.core.run.job import resume, start
    from grpo.plugins.host import Host

    patch = pytest.MonkeyPatch()
    patch.setattr(planning, "refuse_missing_vllm", lambda: None)
    patch.setattr(decide, "refuse_unfit_server", lambda plan: None)  # no server is asked

    def run(engine: Any, resumed: Path | None = None, **settings: Any) -> Path:
        patch.setattr(opening, "open_rollouts", lambda plan, model, *_: engine)
        if resumed is not None:
            resume(resumed, Host.discover(), Silent())
            return resumed
        out = tmp_path_factory.mktemp("ahead") / "run"
        tree = {
            "env": "gsm8k:size=40",
            "dataset": "embedded",
            "model": str(tiny_model),
            "rewards": [vowels],
            "out": str(out),
            "train": {
                "steps": STEPS,
                "prompts_per_step": 3,
                "group_size": 4,
                "micro_batch_size": 4,
                "lr": 1e-2,
                "lr_schedule": "constant",
            },
            "rollout": {"backend": "vllm", "max_completion_length": 12, "ahead": 1},
            "evaluation": {"size": 0},
            "output": {"save_every": 2},
        }
        for key, value in settings.items():
            tree[key] = {**tree.get(key, {}), **value} if isinstance(value, dict) else value  # type: ignore[dict-item]
        start(parse_config(tree), Host.discover(), Silent())
        return out

    try:
        yield run
    finally:
        patch.undo()


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the metrics of a step that do not depend on who was how fast."""
    return {key: value for key, value in row.items() if not key.startswith("time/") and key != "sampling/queued"}


def rollouts(run: Path, column: str, *, wasted: bool = False) -> list[list[Any]]:
    from grpo.core.record.run_dir import RunDir, read_rollouts

    steps = range(1, STEPS + 1)
    return [[row[column] for row in read_rollouts(RunDir(run), step, wasted=wasted)] for step in steps]
