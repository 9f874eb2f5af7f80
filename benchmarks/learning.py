"""Does a job learn? Held-out accuracy before and after, and wall time, for several seeds.

    python benchmarks/learning.py                    # the default job of the README, full and LoRA
    python benchmarks/learning.py --how full --draw guess.svg -- --env guess ...
    python benchmarks/learning.py --runs mini-swe-agent RUN RUN RUN --samples 6 --draw shell.svg

What stands after `--` are the arguments of `grpo run`. Every run is that command in a process of its own; the time is
that of the whole command. `--draw` draws held-out accuracy with its 95% intervals, a line for each run.

`--runs NAME RUN RUN` reads runs that there are, and may be repeated. It draws the rewards of their steps, thin for each
run, and the mean of the runs with its 95% intervals over prompts. `--samples` asks each run's model the held-out
problems so many times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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


def rewards_of(runs: Sequence[Path]) -> Curve:
    """Returns the mean reward of the steps that all of these runs have, with 95% intervals over prompts.

    The place of a step is how many episodes each run had played after it.
    """
    from grpo.core.record.run_dir import RunDir, read_rollouts
    from grpo.core.text.stats import share_of

    curve: Curve = []
    episodes = 0
    for step in range(1, min(len([*(run / "rollouts").glob("step-*.parquet")]) for run in runs) + 1):
        rollouts = [each for run in runs for each in read_rollouts(RunDir(run), step)]
        share = share_of([each["reward"] for each in rollouts], [each["prompt"] for each in rollouts])
        episodes += len(rollouts) // len(runs)
        curve.append((episodes, share.mean, share.low, share.high))
    return curve


def asked(run: Path, samples: int) -> str:
    """Returns the share of right answers of a run's model to the held-out problems, asked several times."""
    command = [sys.executable, "-m", "grpo", "eval", "--model", str(run), "-n", str(samples), "--json"]
    share = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["accuracy"]
    return f"{share['mean']:.3f} ({share['low']:.2f} to {share['high']:.2f}) of {share['values']}"


@contextlib.contextmanager
def picture(path: Path, x: str, y: str) -> Iterator[Any]:
    """Draws a picture of shares from 0 to 1: yields its axis, and then writes it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "grpo", "font.family": "sans-serif"}):
        figure, axis = pyplot.subplots(figsize=(6.4, 3.2), constrained_layout=True)
        yield axis
        axis.set(xlabel=x, ylabel=f"{y}, 95% intervals", ylim=(0, 1.02))
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, loc="best")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)


def draw(curves: Mapping[tuple[str, int], Curve], path: Path) -> None:
    """Draws one line for each way of training and seed."""
    ways = list(dict.fromkeys(how for how, _ in curves))
    with picture(path, "step", "accuracy") as axis:
        for (how, seed), curve in curves.items():
            label = f"seed {seed}" if len(ways) == 1 else f"{how}, seed {seed}"
            steps, means, lows, highs = zip(*curve, strict=True)
            axis.plot(steps, means, ["o-", "s--"][ways.index(how) % 2], color=f"C{seed}", label=label)
            place = list(curves).index((how, seed)) - (len(curves) - 1) / 2
            beside = 0.006 * steps[-1] * place  # so that no interval hides another
            axis.vlines([step + beside for step in steps], lows, highs, color=f"C{seed}", alpha=0.35, linewidth=1.2)


def draw_rewards(groups: Mapping[str, Sequence[Path]], path: Path) -> None:
    """Draws, for each group of runs, their mean with its interval, and a thin line for each run."""
    with picture(path, "episodes", "reward") as axis:
        for number, (name, runs) in enumerate(groups.items()):
            color = f"C{number}"
            episodes, means, lows, highs = zip(*rewards_of(runs), strict=True)
            axis.plot(episodes, means, "o-", color=color, label=f"{name}, mean of {len(runs)} seeds")
            axis.fill_between(episodes, lows, highs, color=color, alpha=0.15, linewidth=0)
            for run in runs:
                each = rewards_of([run])
                axis.plot([point[0] for point in each], [point[1] for point in each], color=color, alpha=0.4, lw=0.8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--how", nargs="+", choices=("full", "lora"), default=["full", "lora"])
    parser.add_argument("--draw", type=Path, metavar="FILE", help="an .svg, .png or .pdf to write")
    parser.add_argument(
        "--runs", action="append", nargs="+", metavar=("NAME", "RUN"), help="runs to draw the rewards of"
    )
    parser.add_argument("--samples", type=int, help="completions of each held-out problem, of each of these runs")
    parser.add_argument("job", nargs="*", default=DEFAULT, help=f"arguments of grpo run ({' '.join(DEFAULT)})")
    options = parser.parse_args()
    if options.runs:
        groups = {name: [Path(run) for run in runs] for name, *runs in options.runs}
        for name, runs in groups.items():
            rewards = ", ".join(f"{mean:.2f} ({low:.2f} to {high:.2f})" for _, mean, low, high in rewards_of(runs))
            print(f"{name}: {rewards}", flush=True)
            for run in runs if options.samples else []:
                print(f"{run}: held out {asked(run, options.samples)}", flush=True)
        if options.draw:
            draw_rewards(groups, options.draw)
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
