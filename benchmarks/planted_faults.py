"""Measures how strong the tests are: plants known faults one at a time and counts those that no test notices.

    python benchmarks/planted_faults.py [--only NAME] [--tests listed|all] [--lane LANE] [--tree DIR] [--rev REV]
                                        [--workers N]

A fault is an entry of a file in benchmarks/faults/: a line that a tired engineer could write in the place of the right
one, and the tests that should notice. For each fault the tool replaces the text in a copy of the tree, runs the tests
up to the first failure and puts the text back. Then it runs every test that noticed something on the unchanged copy.
Where one fails there too, it is left out and its faults are tried again. The exit code is 1 where a fault was missed or
no longer fits its file.

`--tests listed` runs the tests of the entry, `all` those of every folder. `--lane fast,core` runs those of them that
`make test` runs.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "benchmarks" / "faults"
FIELDS = {"name", "room", "file", "old", "new", "tests"}
LIMIT = 900.0  # seconds of one run of pytest
NOTHING_RAN = 5  # pytest's exit code where no test was selected
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.(?:py|md)(?:::.*?)?)(?: - .*)?$", re.MULTILINE)
IGNORED = shutil.ignore_patterns(".git", ".venv", ".real-model", "__pycache__", ".*_cache", "build", "*.egg-info")

Result = Literal["caught", "missed", "stale"]
T = TypeVar("T")


class TableError(Exception):
    """An entry of the table is no fault, or a run of pytest could not begin."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A text of one file and what to write in its place.

    Attributes:
        name: what the fault breaks, in a few words with hyphens.
        room: the part of the project.
        file: relative to the top of the tree.
        old: occurs once in the file.
        new: takes its place.
        tests: the arguments of pytest for the tests that should notice.
    """

    name: str
    room: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def problem(self, tree: Path) -> str:
        """Says why the fault cannot be planted in a tree, or returns ""."""
        path = tree / self.file
        if not path.is_file():
            return f"there is no file {self.file}"
        count = path.read_text(encoding="utf-8").count(self.old)
        if count != 1:
            return f"its text occurs {count} times in {self.file}"
        missing = [test for test in self.tests if not (tree / test.partition("::")[0]).exists()]
        return f"there is no {missing[0]}" if missing else ""

    @contextmanager
    def planted(self, tree: Path) -> Iterator[None]:
        """Has the fault in a tree while the block runs."""
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run of pytest.

    Attributes:
        failed: the ids of tests and files that failed.
        ended: within the limit.
        seconds: wall time.
    """

    failed: tuple[str, ...]
    ended: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one fault; `by` is the test that noticed ("" where the tests did not end), or why it is stale."""

    fault: Fault
    result: Result
    by: str
    seconds: float = 0.0


def read_faults(folder: Path = TABLE) -> list[Fault]:
    """Reads the table.

    Raises:
        TableError: an entry lacks a field, changes nothing, or has a name that another one has.
    """
    faults: list[Fault] = []
    for file in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(file.read_text(encoding="utf-8"))["fault"]:
            if set(entry) != FIELDS:
                raise TableError(f"{file.name}: an entry has the fields {sorted(entry)}, not {sorted(FIELDS)}.")
            faults.append(Fault(**{**entry, "tests": tuple(entry["tests"])}))
    names = [fault.name for fault in faults]
    for fault in faults:
        if names.count(fault.name) > 1 or fault.old == fault.new or not fault.tests:
            raise TableError(f"'{fault.name}': a fault has a name of its own, changes something, and lists tests.")
    return faults


def copy_tree(source: Path, target: Path, revision: str | None) -> None:
    """Copies a tree, or the files of one of its revisions; links stay links."""
    if revision is None:
        shutil.copytree(source, target, symlinks=True, ignore=IGNORED)
        return
    target.mkdir()
    command = ["git", "-C", str(source), "archive", "--format=tar", revision]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as archive:
        assert archive.stdout is not None
        with tarfile.open(fileobj=archive.stdout, mode="r|") as files:
            files.extractall(target, filter="tar")
    if archive.returncode:
        raise TableError(f"git has no revision '{revision}' of {source}.")


class Bench:
    """Runs tests in copies of a tree, one copy for each worker.

    Args:
        source: the tree, whose data set and model the tests in the copies use.
        copies: the copies.
        options: further arguments of pytest, such as a lane.
        limit: seconds of one run.
    """

    def __init__(self, source: Path, copies: Sequence[Path], options: Sequence[str], limit: float) -> None:
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for copy in copies:
            self._free.put(copy)
        self._options = list(options)
        self._limit = limit
        # Bytecode of the copy is worth keeping: the tests start many processes.
        self._environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for name, place in (
            ("GRPO_TEST_DATA", source.parent / "shared" / "data"),
            ("GRPO_TEST_MODEL", source / ".real-model" / "SmolLM2-135M-Instruct"),
        ):
            self._environment.setdefault(name, str(place))

    def failing(self, tests: Iterable[str]) -> set[str]:
        """Returns the ids of tests that fail on the unchanged tree, of these tests and their other parameters."""
        functions = sorted({test.partition("[")[0] for test in tests})
        return set(self._in_copy(lambda copy: self._run(copy, functions, [], None)).failed) if functions else set()

    def verdict(self, fault: Fault, tests: Sequence[str], broken: Iterable[str]) -> Verdict:
        """Plants a fault and runs tests up to the first failure.

        Args:
            fault: to plant.
            tests: the arguments of pytest.
            broken: tests that fail without any fault.
        """

        def tried(copy: Path) -> Verdict:
            if problem := fault.problem(copy):
                return Verdict(fault, "stale", problem)
            with fault.planted(copy):
                run = self._run(copy, tests, ["-x", *(f"--deselect={test}" for test in broken)], self._limit)
            if not run.ended:
                return Verdict(fault, "caught", "", run.seconds)  # the tests did not end
            if run.failed:
                return Verdict(fault, "caught", run.failed[0], run.seconds)
            return Verdict(fault, "missed", "", run.seconds)

        return self._in_copy(tried)

    def _in_copy(self, work: Callable[[Path], T]) -> T:
        copy = self._free.get()
        try:
            return work(copy)
        finally:
            self._free.put(copy)

    def _run(self, copy: Path, tests: Sequence[str], options: Sequence[str], limit: float | None) -> Run:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", "--tb=no"]
        environment = {**self._environment, "PYTHONPATH": str(copy / "src")}
        began = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                [*command, *self._options, *options, *tests],
                cwd=copy,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return Run((), False, time.monotonic() - began)
            output.seek(0)
            text = output.read()
        failed = tuple(dict.fromkeys(FAILED.findall(text)))
        if process.returncode not in (0, NOTHING_RAN) and not failed:
            raise TableError(f"pytest {' '.join(tests)} ended with exit code {process.returncode}:\n{text[-2000:]}")
        return Run(failed, True, time.monotonic() - began)


def measured(
    faults: Sequence[Fault], bench: Bench, tests_of: Callable[[Fault], Sequence[str]], workers: int
) -> Iterator[Verdict]:
    """Yields what came of each fault, and again what came of one whose test fails without it."""
    broken: set[str] = set()
    left = list(faults)
    with ThreadPoolExecutor(workers) as threads:
        while left:
            tries = [threads.submit(bench.verdict, fault, tests_of(fault), sorted(broken)) for fault in left]
            verdicts = []
            for one in as_completed(tries):
                verdicts.append(one.result())
                yield verdicts[-1]
            failing = bench.failing(verdict.by for verdict in verdicts if verdict.result == "caught" and verdict.by)
            left = [verdict.fault for verdict in verdicts if verdict.by in failing]
            for test in {verdict.by for verdict in verdicts} & failing:
                print(f"left out, since it fails without a fault: {test}", flush=True)
            broken |= failing


def main() -> int:
    """Prints a line for each fault and the sums; returns 1 where one was missed or is stale."""
    parser = argparse.ArgumentParser(description="Plant known faults one at a time and see which tests notice.")
    parser.add_argument("--only", action="append", metavar="NAME", help="a fault or a room; may be repeated")
    parser.add_argument("--tests", choices=("listed", "all"), default="listed", help="default: listed")
    parser.add_argument("--lane", help="passed on to pytest")
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR", help="default: the tree of this file")
    parser.add_argument("--rev", help="a git revision of the tree, in the place of its files as they are")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="runs of pytest at once (default: 1)")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="S", help=f"seconds of a run (default: {LIMIT:g})"
    )
    options = parser.parse_args()
    faults = read_faults()
    names = {name for fault in faults for name in (fault.name, fault.room)}
    if unknown := [name for name in options.only or () if name not in names]:
        parser.error(f"no fault or room is named '{unknown[0]}'")
    chosen = [fault for fault in faults if not options.only or {fault.name, fault.room} & set(options.only)]
    workers = max(1, options.workers)
    with tempfile.TemporaryDirectory(prefix="grpo-faults-") as folder:
        copies = [Path(folder) / str(number) / "tree" for number in range(workers)]
        for copy in copies:
            copy.parent.mkdir()
            copy_tree(options.tree.resolve(), copy, options.rev)
        bench = Bench(options.tree.resolve(), copies, [f"--lane={options.lane}"] if options.lane else [], options.limit)
        verdicts: dict[str, Verdict] = {}
        listed = options.tests == "listed"
        for verdict in measured(chosen, bench, lambda fault: fault.tests if listed else ("tests",), workers):
            fault, took = verdict.fault, f"{verdict.seconds:.1f} s"
            verdicts[fault.name] = verdict
            print(f"{verdict.result:<7} {took:>8}  {fault.room:<20} {fault.name:<56} {verdict.by}".rstrip(), flush=True)
    counts = Counter(verdict.result for verdict in verdicts.values())
    seconds = sum(verdict.seconds for verdict in verdicts.values())
    print(
        f"\n{len(verdicts)} faults: {counts['caught']} caught, {counts['missed']} missed, {counts['stale']} stale; "
        f"{seconds:.0f} s with a fault planted"
    )
    return int(counts["caught"] < len(verdicts))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TableError as error:
        sys.exit(str(error))
