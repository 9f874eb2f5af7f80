"""Measures how start, steps and memory of a run grow with its rows, rollouts, steps and processes.

    python benchmarks/growth.py [--small] [--only rows rollouts steps processes] [--draw growth.svg]

Each figure is that of a fresh `grpo run` of the embedded model: processor seconds until the first step is done, those
of a later step, its wall time, and the largest memory of all processes together. Rollouts grow by their prompts;
processes are started by torchrun, with one thread and the same work each. Prints a table in Markdown, in which the last
column is how many times as much a step takes as the row above predicts: no more in rows and steps, in proportion in
rollouts and processes. Far from 1 is a knee. --small takes the first half of each, which is minutes instead of an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import rows as rows_files

VALUES = {
    "rows": [1_000, 10_000, 100_000, 1_000_000],
    "rollouts": [8, 64, 512, 4_096],
    "steps": [10, 100, 500, 2_000],
    "processes": [1, 2, 3, 4],
}
STEPS = 6
LINEAR = ("rollouts", "processes")  # each process has the same work
STEP = re.compile(r"step (\d+) ")
BASE = {"--prompts-per-step": "2", "--group-size": "4", "--max-completion-length": "16", "--eval-size": "0"}


@dataclass(frozen=True, slots=True)
class Point:
    """What a run took."""

    value: int
    start: float  # processor seconds
    step: float  # processor seconds
    wall: float  # seconds of a step
    mib: float


def processes_of(leader: int) -> list[Path]:
    """Returns the folders in /proc of a process and all that it started."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(after_name[1]), []).append(int(stat.parent.name))
    family = [leader]
    for process in family:
        family += parents.get(process, [])
    return [Path(f"/proc/{process}") for process in family]


def used(leader: int) -> tuple[float, float]:
    """Returns processor seconds and the sum of the largest memories (MiB) of a process and all that it started."""
    busy = mib = 0.0
    for folder in processes_of(leader):
        try:
            times = folder.joinpath("stat").read_text().rpartition(")")[2].split()
            memory = re.search(r"VmHWM:\s+(\d+)", folder.joinpath("status").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
        busy += sum(map(int, times[11:15])) / os.sysconf("SC_CLK_TCK")
        mib += int(memory[1]) / 1024 if memory else 0.0
    return busy, mib


def command_of(what: str, value: int, folder: Path) -> list[str]:
    """Returns the command of a run in which one number has a value."""
    flags = dict(BASE) | {"--steps": str(value if what == "steps" else STEPS), "--out": str(folder / "run")}
    flags |= {"--save-every": flags["--steps"]}
    flags |= {"--env": f"rows:dataset={rows_files.written(folder, 'jsonl', value if what == 'rows' else 1000)}"}
    flags |= {"--reward": "proximity"}
    if what == "rollouts":
        flags |= {"--prompts-per-step": str(value // 4)}
    program = [sys.executable, "-m", "grpo"]
    if what == "processes":
        flags |= {"--prompts-per-step": str(2 * value)}  # the same work for each
        program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(value)]
        program += ["-m", "grpo"]
    return [*program, "run", *(word for pair in flags.items() for word in pair)]


def measured(what: str, value: int) -> Point:
    """Runs and returns what it took. Raises SystemExit: it failed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = command_of(what, value, folder)
        environment = dict(os.environ) | ({"OMP_NUM_THREADS": "1"} if what == "processes" else {})
        looks: list[tuple[int, float, float]] = []  # step, processor seconds, MiB
        output: list[str] = []
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                output.append(line)
                if match := STEP.match(line):
                    looks.append((int(match[1]), *used(child.pid)))
        if child.returncode or len(looks) < 2:
            raise SystemExit(f"{' '.join(command)} failed:\n{''.join(output[-30:])}")
        metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    (first, start, _), (last, end, mib) = looks[0], looks[-1]
    half = [row["time/step"] for row in metrics if row.get("time/step")][len(looks) // 2 :]
    return Point(value, start, (end - start) / (last - first), statistics.median(half), mib)


def times_predicted(what: str, before: Point, point: Point) -> float:
    """Returns how many times as much a step takes as the one before predicts."""
    growth = point.value / before.value if what in LINEAR else 1.0
    return point.step / before.step / growth


def draw(curves: dict[str, list[Point]], path: Path) -> None:
    """Draws a curve for each figure over each number."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figures = {"start": "to the first step, processor s", "step": "a step, processor s", "mib": "memory, MiB"}
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "grpo", "font.family": "sans-serif"}):
        grid, axes = pyplot.subplots(
            len(figures), len(curves), figsize=(3 * len(curves), 2.2 * len(figures)), squeeze=False
        )
        for column, (what, points) in enumerate(curves.items()):
            for row, (figure, label) in enumerate(figures.items()):
                axis = axes[row][column]
                axis.plot([point.value for point in points], [getattr(point, figure) for point in points], marker="o")
                axis.set_xscale("log" if what != "processes" else "linear")
                axis.set_ylim(bottom=0)
                axis.set_ylabel(label if column == 0 else "")
                axis.set_xlabel(what if row == len(figures) - 1 else "")
        grid.tight_layout()
        grid.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the first half of each")
    parser.add_argument("--only", nargs="+", choices=[*VALUES], default=[*VALUES])
    parser.add_argument("--draw", type=Path, metavar="FILE", help="an .svg or .png to write")
    options = parser.parse_args()
    curves: dict[str, list[Point]] = {}
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("| what | number | start, processor s | step, processor s | step, s | memory, MiB | times predicted |")
    print("|---|---|---|---|---|---|---|")
    for what in options.only:
        points = curves.setdefault(what, [])
        for value in VALUES[what][: 2 if options.small else None]:
            points.append(point := measured(what, value))
            beyond = f"{times_predicted(what, points[-2], point):.2f}" if len(points) > 1 else ""
            figures = f"{point.start:.1f} | {point.step:.2f} | {point.wall:.2f} | {point.mib:.0f}"
            print(f"| {what} | {value:,} | {figures} | {beyond} |", flush=True)
    if options.draw:
        draw(curves, options.draw)


if __name__ == "__main__":
    main()
