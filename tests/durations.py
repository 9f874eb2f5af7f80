"""Records how long each test takes, and prints where a suite spends its time.

`pytest --durations-to FILE` adds the seconds of every test that ran to FILE: JSON, one line per test function, sorted by
name, the cases of a parametrised test summed. A fixture counts for the test that set it up. Running this file prints the
slowest tests and the sum of each folder:

    python tests/durations.py [.ci/durations.json] [--worst 30]
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import pytest

RECORDED = Path(__file__).resolve().parent.parent / ".ci" / "durations.json"


def function_of(nodeid: str) -> str:
    """Returns the test function of a test's id: the id without its parameters."""
    return nodeid.partition("[")[0]


def read(path: Path) -> dict[str, float]:
    """Returns seconds by test function; nothing where the file does not exist yet."""
    if not path.is_file():
        return {}
    seconds: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return seconds


class DurationRecorder:
    """A pytest plugin that adds the durations of a session to a file when the session ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds one phase of a test: set-up, call or teardown."""
        self.seconds[function_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Writes what was recorded beside what earlier sessions recorded of other tests."""
        merged = read(self.path) | {name: round(seconds, 2) for name, seconds in self.seconds.items()}
        lines = ",\n".join(f"{json.dumps(name)}: {merged[name]}" for name in sorted(merged))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


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
    parser.add_argument("--worst", type=int, default=30, metavar="N", help="how many tests to list (default 30)")
    arguments = parser.parse_args()
    print(summary(read(arguments.file), arguments.worst))
