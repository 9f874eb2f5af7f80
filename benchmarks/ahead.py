"""What does sampling ahead bring? Steps and held-out accuracy a minute, 0, 1, 2, 4 batches ahead, beside plain TRL.

    python benchmarks/ahead.py [--steps 30] [--ahead 0 1 2 4] [--no-trl]

Trains the embedded model on gsm8k's rows, full fine-tuning, each side in a fresh process on a processor of its own; for
ours a rollout server (vLLM) has another one. TRL is its synchronous GRPOTrainer as it comes, which samples with
transformers. Its AsyncGRPOTrainer hands full weights over by NCCL, which takes a GPU, and is not measured. A minute is
one of steps; held-out accuracy and checkpoints are not in it. `computed` are the trainer's own seconds of processor in
a step: where they are far below a step's, the trainer waited, for samples or for a processor that others used. Needs
vLLM (make vllm).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advice import clocked, server

WARMUP_STEPS = 3  # not counted
HELD_OUT = 100
TRL = "TRL, synchronous"


def settings(steps: int, out: Path, ahead: int, url: str) -> dict[str, Any]:
    """The same job for each of our sides."""
    backend = {"backend": "vllm-server", "server_url": url, "ahead": ahead} if url else {}
    return {
        "env": "gsm8k",
        "rewards": ["proximity"],
        "out": str(out),
        "train": {"steps": steps},
        "rollout": backend,
        "evaluation": {"size": 0},
        "output": {"save_every": steps},
    }


def ours(steps: int, out: Path, ahead: int, url: str) -> dict[str, Any]:
    """Trains with grpo; returns seconds of each step and what became of it."""
    from grpo.core.config.schema import parse_config
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    spent: list[float] = []
    start(parse_config(settings(steps, out, ahead, url)), Host.discover(), clocked(spent))
    rows = read_metrics(RunDir(out))
    waited = [row.get("time/ahead_wait") or 0.0 for row in rows]
    return {
        "seconds": [row["time/step"] for row in rows],
        "waited": statistics.fmean(waited[WARMUP_STEPS:]),
        "staleness": rows[-1].get("sampling/staleness", 0.0),
        "computed": (spent[-1] - spent[0]) / (len(spent) - 1),
        "model": str(out),
    }


def theirs(steps: int, out: Path) -> dict[str, Any]:
    """Trains with trl.GRPOTrainer; returns seconds of each step."""
    from step_time import plain_trl

    job = argparse.Namespace(steps=steps, model=None, dataset=None, lora=False, max_completion_length=96)
    seconds = plain_trl(job, out)
    return {
        "seconds": seconds,
        "waited": 0.0,
        "staleness": 0,
        "computed": math.nan,
        "model": str(out / f"checkpoint-{steps}"),
    }


def measured(words: list[str]) -> Mapping[str, Any]:
    """Returns what a side says that trains in a process and on a processor of its own."""
    command = [sys.executable, __file__, *words]
    done = subprocess.run(["taskset", "-c", "1", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"a side ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: Mapping[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def accuracy(model: str) -> float:
    """Returns the held-out accuracy of a run or a folder of weights."""
    words = ["eval", "--env", "gsm8k:dataset=embedded", "--model", model, "--size", str(HELD_OUT), "--json"]
    done = subprocess.run([sys.executable, "-m", "grpo", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)
    return float(found["accuracy"]["mean"])


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ahead", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--no-trl", action="store_true")
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        ahead, out, url = options.side
        done = ours(options.steps, Path(out), int(ahead), url) if url != TRL else theirs(options.steps, Path(out))
        print(json.dumps(done))
        return
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}")
    print(f"python {shlex.join(sys.argv)}\n")
    print("| side | s a step | waited | computed | steps a minute | steps old | held out | gained a minute |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        sides = [] if options.no_trl else [_side(options.steps, 0, f"{folder}/trl", TRL)]
        start = accuracy(_embedded())
        for side in sides:
            print(_row(TRL, side, start), flush=True)
        with server() as more:
            for ahead in options.ahead:
                side = _side(options.steps, ahead, f"{folder}/{ahead}", more["server_url"])
                print(_row(f"{ahead} ahead", side, start), flush=True)
    print(f"\nHeld-out accuracy before training: {start:.2f}, of {HELD_OUT} problems.")


def _side(steps: int, ahead: int, out: str, url: str) -> Mapping[str, Any]:
    found = measured(["--steps", str(steps), "--side", str(ahead), out, url])
    return {**found, "accuracy": accuracy(found["model"])}


def _embedded() -> str:
    from grpo.core.policy.load import policy_source

    return str(policy_source(None).path)


def _row(name: str, side: Mapping[str, Any], start: float) -> str:
    second = statistics.fmean(side["seconds"][WARMUP_STEPS:])
    minutes = sum(side["seconds"]) / 60
    gained = (side["accuracy"] - start) / minutes
    return (
        f"| {name} | {second:.2f} | {side['waited']:.2f} | {side['computed']:.2f} | {60 / second:.1f} | "
        f"{side['staleness']:.0f} | {side['accuracy']:.2f} | {gained:+.3f} |"
    )


if __name__ == "__main__":
    main()
