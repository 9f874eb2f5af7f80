"""Runs style checks and lanes of tests one after another, and lists at the end everything that failed.

A failure in one lane does not keep the next from running. With `--record`, durations go to .ci/durations.json.

    python tests/support/run_lanes.py style fast core [--record] [arguments for pytest]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
STYLE = (("ruff", "check", "."), ("ruff", "format", "--check", "."))

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

# How each lane is spread over processes. Fast tests compute: a process for each core, and a thread for each process.
# The others wait for processes, servers and limits two fifths of their time: three processes for two cores. Tests that
# share what takes long to make stay together, and the longest begin (lanes.py).
# Runs of DeepSpeed have two processes of their own, and each of two processes starts a Ray cluster.
TOGETHER = ("-n", str(min(8, CORES + (CORES + 1) // 2)), "--dist", "loadscope", "--no-loadscope-reorder")
SPREAD = {
    "fast": ("-n", str(min(8, CORES)), "--dist", "worksteal"),
    "deepspeed": ("-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"),
    "ray": ("-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"),
    "trackers": ("-n", "0"),
}


def failures(results: Path) -> list[str]:
    """Returns a line for each test that failed, from pytest's JUnit file; one line where it wrote none."""
    if not results.is_file():
        return [f"pytest ended before it wrote {results}"]
    cases = ElementTree.parse(results).getroot().iter("testcase")
    broken = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return [f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}" for case in broken]


def run_style() -> list[str]:
    """Runs the linter and the formatter's check; returns what failed."""
    folder = Path(sys.executable).parent
    return [" ".join(command) for command in STYLE if subprocess.call([folder / command[0], *command[1:]], cwd=ROOT)]


def run_lane(lane: str, arguments: list[str], folder: Path) -> list[str]:
    """Runs the tests of one lane, with a JUnit file in a folder; returns what failed."""
    results = folder / f"{lane}.xml"
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", f"--lane={lane}", *SPREAD.get(lane, TOGETHER), f"--junitxml={results}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    code = subprocess.call([*command, *arguments], cwd=ROOT, env=environment)
    return failures(results) or [f"pytest ended with exit code {code}"] if code else []


def main(parts: list[str], arguments: list[str], folder: Path) -> int:
    """Runs the parts in order; returns 1 if anything failed, else 0."""
    broken: dict[str, list[str]] = {}
    outcomes = []
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        began = time.monotonic()
        print(f"==> {part}", flush=True)
        broken[part] = run_style() if part == "style" else run_lane(part, arguments, folder)
        outcome = f"{len(broken[part])} failed" if broken[part] else "passed"
        outcomes.append(f"{part}: {outcome} in {time.monotonic() - began:.0f} s")
    failed = [f"FAILED in {part}: {line}" for part, lines in broken.items() for line in lines]
    print("\n".join(["", f"==> {'; '.join(outcomes)}", *failed]))
    with (folder / "failed.txt").open("a", encoding="utf-8") as file:  # of all calls: .ci/run shows it at its end
        file.writelines(f"{line}\n" for line in failed)
    return int(bool(failed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run style checks and lanes of tests; list at the end what failed.")
    parser.add_argument("parts", nargs="+", metavar="PART", help="'style', or a lane of tests/support/lanes.py")
    parser.add_argument("--record", action="store_true", help="record durations in .ci/durations.json")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "build" / "tests", metavar="FOLDER", help="of JUnit files"
    )
    options, passed_on = parser.parse_known_args()
    if options.record:
        passed_on += [f"--durations-to={ROOT / '.ci' / 'durations.json'}"]
    sys.exit(main(options.parts, passed_on, options.results))
