"""Records how long each test takes, and prints where a suite spends its time.

`pytest --lane=LANE --durations-to=FILE` writes the seconds of every test of a lane: JSON, for each lane one line per
test function, sorted by name, the cases of a parametrised test summed. A fixture counts for the test that set it up.
Running this file prints the slowest tests and the sum of each folder:

    python tests/support/durations.py [.ci/durations.json] [--lane fast] [--worst 30]
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import pytest
from lanes import function_of

RECORDED = Path(__file__).resolve().parents[2] / ".ci" / "durations.json"


def read(path: Path = RECORDED) -> dict[str, dict[str, float]]:
    """Returns seconds by lane and test function; nothing where the file does not exist yet."""
    if not path.is_file():
        return {}
    seconds: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
    return seconds


def merged(lanes: dict[str, dict[str, float]]) -> dict[str, float]:
    """Returns the seconds of each test function, from whichever lane took longest for it."""
    seconds: dict[str, float] = {}
    for lane in lanes.values():
        for name, spent in lane.items():
            seconds[name] = max(spent, seconds.get(name, 0.0))
    return seconds


class DurationRecorder:
    """A pytest plugin that writes the durations of a session's tests to a file when the session ends."""

    def __init__(self, path: Path, lane: str) -> None:
        self.path = path
        self.lane = lane
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds one phase of a test: set-up, call or teardown."""
        self.seconds[function_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Writes the lane anew, beside what earlier sessions recorded of other lanes."""
        recorded = {**read(self.path), self.lane: {name: round(spent, 2) for name, spent in self.seconds.items()}}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def summary(seconds: dict[str, float], worst: int) -> str:
    """Returns a table: the sum of each folder, then the slowest test functions."""
    folders: defaultdict[str, float] = defaultdict(float)
    for name, spent in seconds.items():
        parts = name.partition("::")[0].split("/")
        for depth in range(1, len(parts)):
            folders["/".join(parts[:depth]) + "/"] += spent
    lines = [f"{spent:9.1f} s  {name}" for name, spent in sorted(folders.items())]
    slowest = sorted(seconds.items(), key=lambda pair: -pair[1])[:worst]
    lines += ["", *(f"{spent:9.1f} s  {name}" for name, spent in slowest)]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the slowest tests and the sum of each folder.")
    parser.add_argument("file", type=Path, nargs="?", default=RECORDED)
    parser.add_argument("--lane", help="of this lane alone")
    parser.add_argument("--worst", type=int, default=30, metavar="N", help="how many tests to list (default 30)")
    arguments = parser.parse_args()
    recorded = read(arguments.file)
    print(summary(recorded[arguments.lane] if arguments.lane else merged(recorded), arguments.worst))
