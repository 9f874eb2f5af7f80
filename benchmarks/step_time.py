"""Seconds per GRPO step beside plain TRL on the same work, in one run.

    python benchmarks/step_time.py [--lora] [--vllm] [--steps 20] [--rounds 3] [--model DIR] [--dataset FILE]
        [--prompts 8] [--max-completion-length 96]

All sides train the same model on the same prompts with the same batch, loss and token limit; each runs in a fresh
process, the sides take turns, and a round's figure is the median step without the first three, from its first prompt to
the changed weights. `sampling` is generation with the handing over of weights, `update` forward and backward passes and
the optimizer. Plain TRL generates with transformers and scores with the same reward called in a loop. It passes 8
completions of a named model at once, its default, as more take longer there, and all of the embedded one. torch's
threads and memory are as they come there, and as `grpo run` sets them on our side. --vllm adds rollouts by vLLM in the
same process, every sync proven, and the same one batch ahead (--ahead 1). That samples beside the update, so its tokens
are those of a second of the step. Accuracy of any side is not measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from grpo.core.processes.memory import BEFORE_TORCH

WARMUP_STEPS = 3
GROUP = 8  # completions of a prompt
TRL_BATCH = 8  # completions of a named model in a forward and backward pass: more take longer there
ROLLOUTS: dict[str, dict[str, Any]] = {  # of our sides
    "grpo": {},
    "grpo, vLLM": {"backend": "vllm"},
    "grpo, vLLM ahead": {"backend": "vllm", "ahead": 1},
}
TRL = "plain TRL"
TRL_WITHOUT_PLANS = "plain TRL without cuDNN"  # whose attention plans each length anew, which ours keeps out on a GPU


def configuration(options: argparse.Namespace, out: Path, side: str = "grpo") -> dict[str, Any]:
    """The same job for all sides."""
    return {
        "env": "gsm8k",
        "rewards": [options.reward],
        "model": options.model,
        "dataset": options.dataset,
        "out": str(out),
        "train": {
            "steps": options.steps,
            "prompts_per_step": options.prompts,
            "group_size": GROUP,
            "dtype": options.dtype,
            "micro_batch_size": TRL_BATCH if side not in ROLLOUTS and options.model else None,
        },
        "rollout": {"max_completion_length": options.max_completion_length, **ROLLOUTS.get(side, {})},
        "lora": {"enabled": options.lora},
        "evaluation": {"size": 0},
        "output": {"save_every": options.steps},
    }


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a step, and the tokens that it sampled."""

    seconds: float
    sampling: float
    update: float
    tokens: float


def ours(options: argparse.Namespace, out: Path) -> list[Step]:
    """Trains with grpo; returns its steps."""
    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    start(parse_config(configuration(options, out, options.side)), Host.discover(), Silent())
    return [
        Step(
            row["time/step"],
            row["time/generate"],
            row["time/update"],
            row["completions/mean_length"] * options.prompts * GROUP,
        )
        for row in read_metrics(RunDir(out))
    ]


def plain_trl(options: argparse.Namespace, out: Path) -> list[Step]:
    """Trains with trl.GRPOTrainer as it comes; returns its steps."""
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOTrainer

    from grpo.core.config.schema import parse_config
    from grpo.core.env.order import row_order
    from grpo.core.planning.decide import make_plan
    from grpo.core.policy.load import load_policy
    from grpo.core.train.trainer import grpo_config
    from grpo.plugins.host import Host

    plan = make_plan(parse_config(configuration(options, out, options.side)), Host.discover())
    score = plan.rewards[0].spec.function
    rows = Dataset.from_dict(
        {"prompt": [list(e.prompt) for e in plan.train], "answer": [e.row["answer"] for e in plan.train]}
    )

    def scores(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        return [score(c[0]["content"], a) for c, a in zip(completions, answer, strict=True)]

    steps: list[Step] = []

    class Timed(GRPOTrainer):  # type: ignore[misc]
        """Its methods as they are, between two looks at the clock."""

        sampling = rollouts = 0.0

        def _generate(self, *arguments: Any, **how: Any) -> Any:
            began = time.perf_counter()
            made = super()._generate(*arguments, **how)
            self.sampling += time.perf_counter() - began
            return made

        def _generate_and_score_completions(self, *arguments: Any, **how: Any) -> Any:
            began = time.perf_counter()
            made = super()._generate_and_score_completions(*arguments, **how)
            self.rollouts += time.perf_counter() - began
            return made

    class Clock(TrainerCallback):  # type: ignore[misc]
        """From the first prompt of a step to the changed weights."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds = time.perf_counter() - self.began
            tokens = trainer._metrics["train"]["completions/mean_length"][-1] * options.prompts * GROUP
            steps.append(Step(seconds, trainer.sampling, seconds - trainer.rollouts, tokens))
            trainer.sampling = trainer.rollouts = 0.0

    trainer = Timed(
        model=load_policy(plan.source.path, plan.config.train.dtype, plan.config.lora),
        reward_funcs=[scores],
        args=grpo_config(plan, out),
        train_dataset=rows.select(row_order(len(rows), options.steps * plan.config.train.prompts_per_step, 0)),
        processing_class=plan.tokenizer,
    )
    torch.backends.cuda.enable_cudnn_sdp(options.side == TRL)  # loading the policy took it away
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Clock())
    trainer.train()
    return steps


def measure(side: str, arguments: Sequence[str]) -> tuple[Step, float]:
    """Runs one side in a process of its own; returns its median step and peak memory (on a GPU, its own) in MiB."""
    command = [sys.executable, __file__, "--side", side, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    parts = zip(*result["steps"][WARMUP_STEPS:], strict=True)
    return Step(*map(statistics.median, parts)), result["peak_mib"]


def peak_mib() -> float:
    """Returns the most memory that this process held, on a GPU that of its tensors."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reward", default="proximity")
    parser.add_argument("--model", default=None)
    parser.add_argument("--dataset", default=None)
    parser.add_argument("--prompts", type=int, default=8, help=f"prompts of a step, {GROUP} completions each")
    parser.add_argument("--max-completion-length", type=int, default=96)
    parser.add_argument("--dtype", default=None, help="of both sides; default: what ours chooses")
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--side", choices=[*ROLLOUTS, TRL, TRL_WITHOUT_PLANS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        for name, value in BEFORE_TORCH.items() if options.side in ROLLOUTS else ():
            os.environ.setdefault(name, value)
        with tempfile.TemporaryDirectory() as folder:
            steps = (ours if options.side in ROLLOUTS else plain_trl)(options, Path(folder) / "run")
        print(json.dumps({"steps": [astuple(one) for one in steps], "peak_mib": peak_mib()}))
        return
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}")
    heads = f"{'s/step':>9}{'sampling':>10}{'tokens/s':>10}{'update':>9}{'MiB':>7}{'plain TRL takes':>18}"
    print(f"{'round':<7}{'side':<18}{heads}")
    sides = [TRL, *(ROLLOUTS if options.vllm else ("grpo",))]
    ratios: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(1, options.rounds + 1):
        for side in sides:
            step, peak = measure(side, sys.argv[1:])
            if side == TRL:
                theirs = step.seconds
            ratios[side].append(theirs / step.seconds)
            sampled = f"{step.sampling:>10.3f}{step.tokens / step.sampling:>10.0f}"
            if "ahead" in ROLLOUTS.get(side, {}):
                sampled = f"{'beside':>10}{step.tokens / step.seconds:>10.0f}"
            figures = f"{step.seconds:>9.3f}{sampled}{step.update:>9.3f}"
            print(f"{number:<7}{side:<18}{figures}{peak:>7.0f}{ratios[side][-1]:>15.2f} x", flush=True)
    for side in sides[1:]:
        print(f"plain TRL takes {statistics.median(ratios[side]):.2f} times as long per step as {side} (median)")


if __name__ == "__main__":
    main()
