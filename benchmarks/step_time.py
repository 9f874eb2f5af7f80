"""Seconds per GRPO step beside plain TRL on the same work, in one run.

    python benchmarks/step_time.py [--lora] [--vllm] [--steps 20] [--rounds 3] [--model DIR] [--dataset FILE]
        [--prompts 8] [--max-completion-length 96]

All sides train the same model on the same prompts with the same batch, loss and token limit; each runs in a fresh
process, the sides take turns, and a round's figure is the median step without the first three. Plain TRL generates
with transformers and scores with the same reward called in a loop; torch's threads and memory are as they come there,
and as `grpo run` sets them on our side. --vllm adds rollouts by vLLM in the same process, every sync proven, and the
same one batch ahead (--ahead 1). Accuracy of any side is not measured here.
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
from pathlib import Path
from typing import Any

from grpo.core.processes.memory import BEFORE_TORCH

WARMUP_STEPS = 3
ROLLOUTS: dict[str, dict[str, Any]] = {  # of our sides
    "grpo": {},
    "grpo, vLLM": {"backend": "vllm"},
    "grpo, vLLM ahead": {"backend": "vllm", "ahead": 1},
}
TRL = "plain TRL"


def configuration(options: argparse.Namespace, out: Path, side: str = "grpo") -> dict[str, Any]:
    """The same job for all sides."""
    return {
        "env": "gsm8k",
        "rewards": ["proximity"],
        "model": options.model,
        "dataset": options.dataset,
        "out": str(out),
        "train": {"steps": options.steps, "prompts_per_step": options.prompts},
        "rollout": {"max_completion_length": options.max_completion_length, **ROLLOUTS[side]},
        "lora": {"enabled": options.lora},
        "evaluation": {"size": 0},
        "output": {"save_every": options.steps},
    }


def ours(options: argparse.Namespace, out: Path) -> list[float]:
    """Trains with grpo; returns seconds per step."""
    from grpo.core.config.schema import parse_config
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.run.job import start
    from grpo.core.run.progress import Silent
    from grpo.plugins.host import Host

    start(parse_config(configuration(options, out, options.side)), Host.discover(), Silent())
    return [row["time/step"] for row in read_metrics(RunDir(out))]


def plain_trl(options: argparse.Namespace, out: Path) -> list[float]:
    """Trains with trl.GRPOTrainer as it comes; returns seconds per step."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    from grpo.core.config.schema import parse_config
    from grpo.core.env.order import row_order
    from grpo.core.planning.decide import make_plan
    from grpo.core.policy.load import load_policy
    from grpo.core.train.trainer import grpo_config
    from grpo.plugins.host import Host

    plan = make_plan(parse_config(configuration(options, out)), Host.discover())
    score = plan.rewards[0].spec.function
    rows = Dataset.from_dict(
        {"prompt": [list(e.prompt) for e in plan.train], "answer": [e.row["answer"] for e in plan.train]}
    )

    def proximity(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        return [score(c[0]["content"], a) for c, a in zip(completions, answer, strict=True)]

    trainer = GRPOTrainer(
        model=load_policy(plan.source.path, plan.config.train.dtype, plan.config.lora),
        reward_funcs=[proximity],
        args=grpo_config(plan, out),
        train_dataset=rows.select(row_order(len(rows), options.steps * plan.config.train.prompts_per_step, 0)),
        processing_class=plan.tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [row["step_time"] for row in trainer.state.log_history if "step_time" in row]


def measure(side: str, options: argparse.Namespace) -> tuple[float, float]:
    """Runs one side in a process of its own; returns median seconds per step and peak memory in MiB."""
    arguments = [sys.executable, __file__, "--side", side, *sys.argv[1:]]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    return statistics.median(result["seconds"][WARMUP_STEPS:]), result["peak_mib"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default=None)
    parser.add_argument("--dataset", default=None)
    parser.add_argument("--prompts", type=int, default=8, help="prompts of a step, 8 completions each")
    parser.add_argument("--max-completion-length", type=int, default=96)
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--side", choices=[*ROLLOUTS, TRL], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        for name, value in BEFORE_TORCH.items() if options.side != TRL else ():
            os.environ.setdefault(name, value)
        with tempfile.TemporaryDirectory() as folder:
            seconds = (plain_trl if options.side == TRL else ours)(options, Path(folder) / "run")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "peak_mib": peak}))
        return
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}")
    print(f"{'round':<7}{'side':<18}{'s/step':>9}{'MiB':>7}{'plain TRL takes':>18}")
    sides = [TRL, *(ROLLOUTS if options.vllm else ("grpo",))]
    ratios: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(1, options.rounds + 1):
        for side in sides:
            seconds, peak = measure(side, options)
            if side == TRL:
                theirs = seconds
            ratios[side].append(theirs / seconds)
            print(f"{number:<7}{side:<18}{seconds:>9.3f}{peak:>7.0f}{theirs / seconds:>15.2f} x", flush=True)
    for side in sides[1:]:
        print(f"plain TRL takes {statistics.median(ratios[side]):.2f} times as long per step as {side} (median)")


if __name__ == "__main__":
    main()
