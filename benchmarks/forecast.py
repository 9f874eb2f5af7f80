"""Does the forecast of a run hold? Five runs, and what each said after step 20 beside what then happened.

    python benchmarks/forecast.py [--only default guess ...] [--keep DIR]

Trains the embedded model on five jobs. Time: from step 20 to the end. Accuracy: the first step whose accuracy of
sampled completions, averaged with two steps before and two after, is as high as the target.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from grpo.core.record.run_dir import RunDir, read_metrics
from grpo.core.run.forecast import FIRST_ACCURACY, forecast

GUESS = "--env guess --warmup-steps 40 --prompts-per-step 24 --max-completion-length 6 --set train.lr=1e-4"
JOBS = {  # name: (arguments of grpo run, steps, completions of each, target)
    "default": ("--env gsm8k --reward proximity", 60, 64, 0.85),
    "another seed": ("--env gsm8k --reward proximity --seed 7", 60, 64, 0.85),
    "lora": ("--env gsm8k --reward proximity --lora", 60, 64, 0.8),
    "half the prompts": ("--env gsm8k --reward proximity --prompts-per-step 4 --seed 2", 80, 32, 0.85),
    "guess": (f"{GUESS} --set train.warmup_lr=5e-4", 60, 192, 0.75),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--keep", type=Path, help="where the runs stay; one that is there is read and not made again")
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}\n")
    print("| run | s to the end, said | was | step of an accuracy | said | was |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only:
            print(line(name, (given.keep or Path(folder)) / name.replace(" ", "-")), flush=True)


def line(name: str, out: Path) -> str:
    """Trains a job, unless its run is there, and returns its row of the table."""
    arguments, steps, completions, target = JOBS[name]
    if not out.exists():
        command = [sys.executable, "-m", "grpo", "run", *arguments.split(), "--steps", str(steps), "--out", str(out)]
        subprocess.run([*command, "--quiet"], check=True)
    rows = read_metrics(RunDir(out))
    said = forecast(
        [row for row in rows if row["step"] <= FIRST_ACCURACY], steps=steps, completions=completions, target=target
    )
    assert said is not None
    later = [row for row in rows if row["step"] > FIRST_ACCURACY]
    took = sum(float(row.get(part) or 0) for row in later for part in ("time/step", "time/held_out", "time/checkpoint"))
    shares = [row["accuracy"] for row in rows if row["step"] > 0]
    smooth = [fmean(shares[max(0, at - 2) : at + 3]) for at in range(len(shares))]
    reached = next((step for step, share in enumerate(smooth, start=1) if share >= target), None)
    if said.reached is None:
        step, right = "not in sight", reached is None
    else:
        low, high = said.reached.low, said.reached.high
        step = f"from {low:.0f}" if math.isinf(high) else f"{low:.0f} to {high:.0f}"
        right = low <= reached <= high if reached is not None else high > steps
    when = "never" if reached is None else str(reached)
    in_time = said.seconds.low <= took <= said.seconds.high
    return (
        f"| {name} | {said.seconds.low:.0f} to {said.seconds.high:.0f} | {took:.0f}{mark(in_time)} "
        f"| {target:.0%} | {step} | {when}{mark(right)} |"
    )


def mark(held: bool) -> str:
    return "" if held else " (outside)"


if __name__ == "__main__":
    main()
