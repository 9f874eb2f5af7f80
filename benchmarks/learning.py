"""Does a job learn? Held-out accuracy before and after, and wall time, for several seeds.

    python benchmarks/learning.py                    # the default job of the README, full and LoRA
    python benchmarks/learning.py --how full --draw guess.svg -- --env guess ...
    python benchmarks/learning.py --runs RUN RUN RUN --samples 6 --draw chores.svg

What stands after `--` are the arguments of `grpo run`. Every run is that command in a process of its own; the time is
that of the whole command. `--draw` draws held-out accuracy with its 95% intervals, a line for each run. `--runs` draws
the mean reward of each step of finished runs instead, with intervals over the step's prompts; `--samples` asks each
run's model the held-out problems so many times.
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
from collections.abc import Mapping, Sequence
from pathlib import Path

DEFAULT = ("--env", "gsm8k", "--reward", "proximity")
Curve = list[tuple[int, float, float, float]]  # step, held-out accuracy and the ends of its 95% interval


def first_step_after(run: Path, started: float, process: subprocess.Popen[str]) -> float | None:
    """Waits for the first step's line in metrics.jsonl; returns seconds since `started`."""
    file = run / "metrics.jsonl"
    while process.poll() is None:
        if file.exists() and '"step": 1,' in file.read_text():
            return time.time() - started
        time.sleep(0.05)
    return None


def trained(arguments: Sequence[str]) -> tuple[Curve, float, float]:
    """Runs one job; returns its curve, the seconds to its first step and those of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "grpo", "run", *arguments, "--out", str(run), "--quiet"]
        started = time.time()
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        first = first_step_after(run, started, process)
        errors = process.communicate()[1]
        whole = time.time() - started
        if process.returncode or first is None:
            raise SystemExit(errors)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = [row for row in rows if "held_out/accuracy" in row]
    keys = ("step", "held_out/accuracy", "held_out/accuracy_low", "held_out/accuracy_high")
    return [tuple(row[key] for key in keys) for row in measured], first, whole


def rewards_of(run: Path) -> Curve:
    """Returns the mean reward of each step of a run, with a 95% interval over its prompts."""
    from grpo.core.record.run_dir import RunDir, read_rollouts
    from grpo.core.text.stats import share_of

    curve: Curve = []
    for step in range(1, len([*(run / "rollouts").glob("step-*.parquet")]) + 1):
        rollouts = read_rollouts(RunDir(run), step)
        share = share_of([each["reward"] for each in rollouts], [each["prompt"] for each in rollouts])
        curve.append((step, share.mean, share.low, share.high))
    return curve


def asked(run: Path, samples: int) -> str:
    """Returns the share of right answers of a run's model to the held-out problems, asked several times."""
    command = [sys.executable, "-m", "grpo", "eval", "--model", str(run), "-n", str(samples), "--json"]
    share = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["accuracy"]
    return f"{share['mean']:.3f} ({share['low']:.2f} to {share['high']:.2f}) of {share['values']}"


def draw(curves: Mapping[tuple[str, int], Curve], path: Path, measured: str = "accuracy") -> None:
    """Draws one line for each way of training and seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ways = list(dict.fromkeys(how for how, _ in curves))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "grpo", "font.family": "sans-serif"}):
        figure, axis = pyplot.subplots(figsize=(6.4, 3.2), constrained_layout=True)
        for (how, seed), curve in curves.items():
            label = f"seed {seed}" if len(ways) == 1 else f"{how}, seed {seed}"
            steps, means, lows, highs = zip(*curve, strict=True)
            axis.plot(steps, means, ["o-", "s--"][ways.index(how) % 2], color=f"C{seed}", label=label)
            place = list(curves).index((how, seed)) - (len(curves) - 1) / 2
            beside = 0.006 * steps[-1] * place  # so that no interval hides another
            axis.vlines([step + beside for step in steps], lows, highs, color=f"C{seed}", alpha=0.35, linewidth=1.2)
        axis.set(xlabel="step", ylabel=f"{measured}, 95% intervals", ylim=(0, 1.02))
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, loc="best")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--how", nargs="+", choices=("full", "lora"), default=["full", "lora"])
    parser.add_argument("--draw", type=Path, metavar="FILE", help="an .svg, .png or .pdf to write")
    parser.add_argument("--runs", type=Path, nargs="+", metavar="RUN", help="finished runs to draw the rewards of")
    parser.add_argument("--samples", type=int, help="completions of each held-out problem, of each of these runs")
    parser.add_argument("job", nargs="*", default=DEFAULT, help=f"arguments of grpo run ({' '.join(DEFAULT)})")
    options = parser.parse_args()
    if options.runs:
        curves = {("", seed): rewards_of(run) for seed, run in enumerate(options.runs)}
        for (_, seed), curve in curves.items():
            print(f"seed {seed}: " + ", ".join(f"{mean:.2f} ({low:.2f} to {high:.2f})" for _, mean, low, high in curve))
        for run in options.runs if options.samples else []:
            print(f"{run}: held out {asked(run, options.samples)}", flush=True)
        if options.draw:
            draw(curves, options.draw, "reward of a step")
        return
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}")
    print(f"grpo run {' '.join(options.job)}")
    print(f"{'training':<10}{'seed':>5}{'before':>9}{'after':>8}{'first step s':>14}{'whole s':>9}")
    curves = {}
    for how in options.how:
        for seed in range(options.seeds):
            curve, first, whole = trained([*options.job, f"--{how}", "--seed", str(seed)])
            curves[how, seed] = curve
            print(f"{how:<10}{seed:>5}{curve[0][1]:>9.3f}{curve[-1][1]:>8.3f}{first:>14.1f}{whole:>9.1f}", flush=True)
            if options.draw:
                draw(curves, options.draw)


if __name__ == "__main__":
    main()
