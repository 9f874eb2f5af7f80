"""Trains a job as one rank for `benchmarks/scale.py`, and records the seconds of its steps and its peak memory.

    torchrun ... scale_process.py JOB FOLDER

The job names a side, `grpo` or plain TRL, and the configuration that both train by; variables as `accelerate launch`
sets them say what is sharded. A step is timed from the end of the one before to its own end, with everything in
between: sampling, scoring, update, optimizer, records.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from sharded_command import undo_what_keeps_libraries_from_a_cpu

from grpo.core.processes.rank import rank


def ours(settings: Mapping[str, Any]) -> list[float]:
    """Trains as `grpo run` does; returns when each step ended, on the first process."""
    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    ended: list[float] = []

    class Clock(Silent):
        def stepped(self, *_: Any) -> None:
            ended.append(time.perf_counter())

    start(parse_config(settings), Host.discover(), Clock())
    return ended


def plain_trl(settings: Mapping[str, Any]) -> list[float]:
    """Trains with trl.GRPOTrainer as it comes; returns when each step ended."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOTrainer

    from grpo.core.config.schema import parse_config
    from grpo.core.env.order import row_order
    from grpo.core.planning.decide import make_plan
    from grpo.core.policy.load import load_policy
    from grpo.core.policy.whole import is_sharded
    from grpo.core.processes.sharding import asked_sharding, join, refuse_unsharded, settle_launcher
    from grpo.core.train.trainer import grpo_config
    from grpo.plugins.host import Host

    sharding = asked_sharding()
    join(sharding)
    settle_launcher(sharding)
    plan = make_plan(parse_config(settings), Host.discover())
    train, score = plan.config.train, plan.rewards[0].spec.function
    rows = Dataset.from_dict({"prompt": [list(episode.prompt) for episode in plan.train]})
    ended: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_log(self, *_: Any, logs: Mapping[str, float], **__: Any) -> None:
            if "loss" in logs:
                ended.append(time.perf_counter())

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return [score(completion[0]["content"]) for completion in completions]

    trainer = GRPOTrainer(
        model=load_policy(plan.source.path, train.dtype, plan.config.lora),
        reward_funcs=[reward],
        args=grpo_config(plan, Path(settings["out"])),
        train_dataset=rows.select(row_order(len(rows), (train.steps or 0) * train.prompts_per_step, 0)),
        processing_class=plan.tokenizer,
        callbacks=[Clock()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    refuse_unsharded(sharding, trainer.model_wrapped, sharded=is_sharded(trainer.model))
    return ended


def main() -> None:
    """Does the job, and leaves what it took in the folder."""
    job, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    undo_what_keeps_libraries_from_a_cpu()
    ended = (ours if job["side"] == "grpo" else plain_trl)(job["settings"])
    seconds = [after - before for before, after in pairwise(ended)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    (folder / f"process-{rank()}.json").write_text(json.dumps({"seconds": seconds, "peak": peak}))


if __name__ == "__main__":
    main()
