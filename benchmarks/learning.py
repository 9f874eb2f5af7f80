"""Does the default job learn? Held-out accuracy before and after, and wall time, for several seeds, full and LoRA.

    python benchmarks/learning.py [--seeds 3] [--reward proximity ...]

Every run is the command that the README shows, in a process of its own; the time is that of the whole command.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def first_step_after(run: Path, started: float, process: subprocess.Popen[str]) -> float | None:
    """Waits for the first step's line in metrics.jsonl; returns seconds since `started`."""
    file = run / "metrics.jsonl"
    while process.poll() is None:
        if file.exists() and '"step": 1,' in file.read_text():
            return time.time() - started
        time.sleep(0.05)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--reward", nargs="+", default=["proximity"])
    options = parser.parse_args()
    rewards = [word for reward in options.reward for word in ("--reward", reward)]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}")
    print(f"{'training':<10}{'seed':>5}{'before':>9}{'after':>8}{'first step s':>14}{'whole s':>9}")
    for how in ("full", "lora"):
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                command = [sys.executable, "-m", "grpo", "run", "--env", "gsm8k", *rewards, f"--{how}"]
                started = time.time()
                process = subprocess.Popen(
                    [*command, "--seed", str(seed), "--out", str(run), "--quiet"], stderr=subprocess.PIPE, text=True
                )
                first = first_step_after(run, started, process)
                errors = process.communicate()[1]
                whole = time.time() - started
                if process.returncode or first is None:
                    raise SystemExit(errors)
                rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
                held_out = [row["held_out/accuracy"] for row in rows if "held_out/accuracy" in row]
            print(f"{how:<10}{seed:>5}{held_out[0]:>9.3f}{held_out[-1]:>8.3f}{first:>14.1f}{whole:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
