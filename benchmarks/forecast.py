"""Does the forecast of a run hold? What runs said after step 20 beside what then happened.

    python benchmarks/forecast.py [--only default guess ...] [--keep DIR]
    python benchmarks/forecast.py --runs RUN [RUN ...]

Trains the embedded model on nine jobs; the constants of core/timing/target.py were chosen on the first five among
others. Time: from step 20 to the end. Accuracy: the first step whose accuracy of sampled completions, averaged with two
steps before and two after, is as high as the target. Below the table, how often the interval of an accuracy held over
all of TARGETS that were not reached yet, asked after each of the steps ASKED; a target that a run never reaches is held
where the interval has no end, or one after the last step. With --runs, the same count over runs that are over.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo.core.record.run_dir import RunDir, read_json, read_metrics
from grpo.core.timing.forecast import FIRST_ACCURACY, forecast
from grpo.core.timing.target import reaches

GUESS = "--env guess --warmup-steps 40 --prompts-per-step 24 --max-completion-length 6 --set train.lr=1e-4"
JOBS = {  # name: (arguments of grpo run, steps, completions of each, target)
    "default": ("--env gsm8k --reward proximity", 60, 64, 0.85),
    "another seed": ("--env gsm8k --reward proximity --seed 7", 60, 64, 0.85),
    "lora": ("--env gsm8k --reward proximity --lora", 60, 64, 0.8),
    "half the prompts": ("--env gsm8k --reward proximity --prompts-per-step 4 --seed 2", 80, 32, 0.85),
    "guess": (f"{GUESS} --set train.warmup_lr=5e-4", 60, 192, 0.75),
}
OTHERS = {
    "seed 11": ("--env gsm8k --reward proximity --seed 11", 60, 64, 0.85),
    "rloo": ("--env gsm8k --reward math --advantage rloo --seed 3", 60, 64, 0.85),
    "a low rate": ("--env gsm8k --reward proximity --lr 5e-5 --seed 4", 60, 64, 0.85),
    "arithmetic": ("--env arithmetic:lowest=1,highest=2 --reward arithmetic --seed 5", 60, 64, 0.3),
}
EVERY = {**JOBS, **OTHERS}
TARGETS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
ASKED = (20, 30, 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=EVERY, default=list(EVERY))
    parser.add_argument("--keep", type=Path, help="where the runs stay; one that is there is read and not made again")
    parser.add_argument("--runs", type=Path, nargs="*", help="finished runs to count over instead")
    given = parser.parse_args()
    if given.runs:
        held = [one for run in given.runs for one in holds(run)]
        print(f"{len(given.runs)} runs: the interval of an accuracy held in {sum(held)} of {len(held)} forecasts")
        return
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}\n")
    print("| run | s to the end, said | was | step of an accuracy | said | was |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = given.keep or Path(folder)
        for name in given.only:
            print(line(name, place / name.replace(" ", "-")), flush=True)
        print()
        for what, jobs in (("the first five", JOBS), ("the others", OTHERS)):
            held = [one for name in given.only if name in jobs for one in holds(place / name.replace(" ", "-"))]
            print(f"{what}: the interval of an accuracy held in {sum(held)} of {len(held)} forecasts")


def line(name: str, out: Path) -> str:
    """Trains a job, unless its run is there, and returns its row of the table."""
    arguments, steps, completions, target = EVERY[name]
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
    reached = reached_at(accuracies(rows), target)
    if said.reached is None:
        step, right = "not in sight", reached is None
    else:
        low, high = said.reached.low, said.reached.high
        step = f"from {low:.0f}" if math.isinf(high) else f"{low:.0f} to {high:.0f}"
        step = "reached" if high == low <= FIRST_ACCURACY else step
        right = low <= reached <= high if reached is not None else high > steps
    when = "never" if reached is None else str(reached)
    in_time = said.seconds.low <= took <= said.seconds.high
    return (
        f"| {name} | {said.seconds.low:.0f} to {said.seconds.high:.0f} | {took:.0f}{mark(in_time)} "
        f"| {target:.0%} | {step} | {when}{mark(right)} |"
    )


def holds(out: Path) -> list[bool]:
    """Returns whether the interval held, for each step of ASKED and each target that was not reached by then."""
    run = RunDir(out)
    known, train = accuracies(read_metrics(run)), read_json(run.config)["train"]
    completions = train["prompts_per_step"] * train["group_size"]
    found = []
    for asked in ASKED:
        if asked >= len(known):
            break
        for target in TARGETS:
            reached = reached_at(known, target)
            if reached is not None and reached <= asked:
                continue
            said = reaches(known[:asked], completions, target)
            if reached is None:
                found.append(said is None or said.high > len(known))
            else:
                found.append(said is not None and said.low <= reached <= said.high)
    return found


def accuracies(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Returns the steps of a run with the accuracies of their completions."""
    return [(row["step"], row["accuracy"]) for row in rows if row["step"] > 0]


def reached_at(known: Sequence[tuple[int, float]], target: float) -> int | None:
    """Returns the first step whose accuracy, averaged over five, is as high, None for none."""
    shares = [share for _, share in known]
    return next((known[at][0] for at in range(2, len(shares) - 2) if fmean(shares[at - 2 : at + 3]) >= target), None)


def mark(held: bool) -> str:
    return "" if held else " (outside)"


if __name__ == "__main__":
    main()
