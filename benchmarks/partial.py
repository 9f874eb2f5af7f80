"""What a step gains that does not wait for its slowest rollout: a game whose environment is slow in some episodes.

    python benchmarks/partial.py [--steps 20] [--seconds 1] [--one-in 4] [--parts 0 1]

The game is `guess`, four turns at most. In one of so many episodes its environment takes so long for each step, as a
tool does that asks another machine. Whole rollouts (`--partial 0`) have each step wait for all turns of the slowest;
with parts of one token each rollout has one turn in a step, and the others train meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from grpo import env
from grpo.envs.guess.game import NumberGame

SECONDS, ONE_IN = "GRPO_BENCHMARK_SECONDS", "GRPO_BENCHMARK_ONE_IN"


class SlowGame(NumberGame):
    """`guess`, slow in some episodes."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes a guess; the number decides how long."""
        if self._number is not None and self._number % int(os.environ[ONE_IN]) == 0:
            time.sleep(float(os.environ[SECONDS]))
        return super().step(action)


@env(version=1, rewards=("environment",), verifier="environment", max_turns=4)
def slow_guess() -> SlowGame:
    """Guess a number from 1 to 15."""
    return SlowGame(1, 15, 4, reminds=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--one-in", type=int, default=4)
    parser.add_argument("--parts", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= {SECONDS: str(options.seconds), ONE_IN: str(options.one_in)}
    print("| `--partial` | s a step | s sampling | completions a minute | steps old at most | held-out accuracy |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            run = Path(folder) / f"run-{part}"
            job = f"--env {Path(__file__).resolve()}:slow_guess --steps {options.steps} --seed {options.seed}"
            job += f" --partial {part} --eval-every {options.steps} --quiet --out {run}"
            done = subprocess.run([sys.executable, "-m", "grpo", "run", *job.split()], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            print(row_of(part, run, rows), flush=True)


def row_of(part: int, run: Path, rows: list[dict[str, Any]]) -> str:
    """Returns a row of the table; the first quarter of the steps, in which rollouts of all ages begin, counts."""
    from grpo.core.record.run_dir import RunDir, read_rollouts

    held_out = [row["held_out/accuracy"] for row in rows if "held_out/accuracy" in row]
    steps = [row for row in rows if row["step"]]
    seconds = sum(row["time/step"] for row in steps)
    completions = sum(len(read_rollouts(RunDir(run), row["step"])) for row in steps)
    sampling = sum(row["time/generate"] for row in steps) / len(steps)
    oldest = max(row.get("sampling/staleness", 0.0) for row in steps)
    figures = (f"{seconds / len(steps):.2f}", f"{sampling:.2f}", f"{60 * completions / seconds:.0f}", f"{oldest:.0f}")
    return f"| {part} | {' | '.join(figures)} | {held_out[0]:.2f} to {held_out[-1]:.2f} |"


if __name__ == "__main__":
    main()
