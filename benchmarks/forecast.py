"""Does the forecast of a run hold? The time that runs gave after step 20 beside what then happened.

    python benchmarks/forecast.py [--only default guess ...] [--keep DIR]

Trains the embedded model on nine jobs. Time: from step 20 to the end.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from grpo.core.record.run_dir import RunDir, read_metrics
from grpo.core.timing.forecast import SECOND_TIME, forecast

GUESS = "--env guess --warmup-steps 40 --prompts-per-step 24 --max-completion-length 6 --set train.lr=1e-4"
JOBS = {  # name: (arguments of grpo run, steps, completions of each)
    "default": ("--env gsm8k --reward proximity", 60, 64),
    "another seed": ("--env gsm8k --reward proximity --seed 7", 60, 64),
    "lora": ("--env gsm8k --reward proximity --lora", 60, 64),
    "half the prompts": ("--env gsm8k --reward proximity --prompts-per-step 4 --seed 2", 80, 32),
    "guess": (f"{GUESS} --set train.warmup_lr=5e-4", 60, 192),
    "seed 11": ("--env gsm8k --reward proximity --seed 11", 60, 64),
    "rloo": ("--env gsm8k --reward math --advantage rloo --seed 3", 60, 64),
    "a low rate": ("--env gsm8k --reward proximity --lr 5e-5 --seed 4", 60, 64),
    "arithmetic": ("--env arithmetic:lowest=1,highest=2 --reward arithmetic --seed 5", 60, 64),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--keep", type=Path, help="where the runs stay; one that is there is read and not made again")
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}\n")
    print("| run | s to the end, forecast | measured |")
    print("|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = given.keep or Path(folder)
        for name in given.only:
            print(line(name, place / name.replace(" ", "-")), flush=True)


def line(name: str, out: Path) -> str:
    """Trains a job, unless its run is there, and returns its row of the table."""
    arguments, steps, completions = JOBS[name]
    if not out.exists():
        command = [sys.executable, "-m", "grpo", "run", *arguments.split(), "--steps", str(steps), "--out", str(out)]
        subprocess.run([*command, "--quiet"], check=True)
    rows = read_metrics(RunDir(out))
    early = [row for row in rows if row["step"] <= SECOND_TIME]
    foreseen = forecast(early, steps=steps, completions=completions)
    assert foreseen is not None
    later = [row for row in rows if row["step"] > SECOND_TIME]
    took = sum(float(row.get(part) or 0) for row in later for part in ("time/step", "time/held_out", "time/checkpoint"))
    low, high = foreseen.seconds.low, foreseen.seconds.high
    return f"| {name} | {low:.0f} to {high:.0f} | {took:.0f}{'' if low <= took <= high else ' (outside)'} |"


if __name__ == "__main__":
    main()
