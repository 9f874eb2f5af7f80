"""Does credit for single turns learn faster? Rewards of a tool environment, for several seeds.

    python benchmarks/turns.py [--seeds 0 1 2] [--steps 30]

In examples/boxes.py a policy names the numbers in two boxes, one after the other, and may look into each with a tool
first. A policy that was warmed up looks every second time; from the reward it finds out that looking pays. Both
advantages have the same gradient on average (no division by a deviation), and differ in how much chance is in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ENV = Path(__file__).resolve().parents[1] / "examples" / "boxes.py"
ADVANTAGES = ("group_mean:scale=none", "return_to_go")
WARM_UP = 600


def grpo_run(arguments: str, run: Path) -> list[dict[str, Any]]:
    """Runs one job; returns the metrics of its steps.

    Raises:
        SystemExit: it failed.
    """
    job = f"--env {ENV}:boxes --prompts-per-step 2 --group-size 8 --loss dr_grpo --eval-size 0 {arguments}"
    command = [sys.executable, "-m", "grpo", "run", *job.split(), "--max-completion-length", "48", "--quiet"]
    done = subprocess.run([*command, "--out", str(run)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["step"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--lr", default="1e-4")
    options = parser.parse_args()
    fifth = max(1, options.steps // 5)
    print("mean reward of every fifth of the steps\n\n| advantage | seed | 1 | 2 | 3 | 4 | 5 | all |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        taught = Path(folder) / "taught"
        grpo_run(f"--steps 1 --lr 1e-9 --warmup-steps {WARM_UP} --set train.warmup_lr=2e-3", taught)
        for seed in options.seeds:
            for advantage in ADVANTAGES:
                job = f"--model {taught}/model --steps {options.steps} --lr {options.lr} --seed {seed}"
                rows = grpo_run(f"{job} --advantage {advantage}", Path(folder) / f"{advantage[:5]}-{seed}")
                paid = [row["reward"] for row in rows]
                parts = [paid[first : first + fifth] for first in range(0, len(paid), fifth)] + [paid]
                told = " | ".join(f"{sum(part) / len(part):.2f}" for part in parts)
                print(f"| `{advantage}` | {seed} | {told} |", flush=True)


if __name__ == "__main__":
    main()
