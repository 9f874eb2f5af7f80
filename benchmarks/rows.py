"""Measures what rows cost before a run begins: processor time and memory of `grpo run --dry-run`, by their number.

    python benchmarks/rows.py [--rows 1000,20000,1000000] [--kinds jsonl,csv,json,parquet,saved] [--limits 10,300]

Prints a table in Markdown. Each figure is that of a fresh process, which reads, checks and measures all rows and shows
the first prompt; the memory is its peak. A row is a question of 90 characters with a number as its answer, in a file of
146 MB for a million of them. Exit code 1: the most rows of a kind take more seconds or MB than the limits, beyond what
the fewest take.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GRPO = str(Path(sys.executable).with_name("grpo"))
KINDS = ("jsonl", "csv", "json", "parquet", "saved")
MB = 1e6


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Yields questions, the same ones every time."""
    draw = random.Random(1)
    for number in range(count):
        had, more = draw.randrange(10**6), draw.randrange(10**6)
        question = f"A farm has {had} hens and buys {more} more. How many hens are there now? Answer with a number."
        yield {"id": number, "question": question, "answer": str(had + more)}


def written(folder: Path, kind: str, count: int) -> Path:
    """Writes rows in a layout and returns where they are."""
    path = folder / (f"rows.{kind}" if kind != "saved" else "rows")
    if kind in ("parquet", "saved"):
        from datasets import Dataset

        dataset = Dataset.from_generator(lambda: rows(count), cache_dir=str(folder / "cache"))
        dataset.to_parquet(path) if kind == "parquet" else dataset.save_to_disk(path)
        return path
    with path.open("w", encoding="utf-8", newline="") as file:
        if kind == "csv":
            table = csv.DictWriter(file, ["id", "question", "answer"])
            table.writeheader()
            table.writerows(rows(count))
        elif kind == "json":
            json.dump(list(rows(count)), file)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows(count))
    return path


def measured(kind: str, count: int) -> tuple[float, float]:
    """Returns the seconds of processor time and the MB of memory that a dry run over so many rows takes.

    Raises:
        RuntimeError: the command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [GRPO, "run", "--env", f"rows:dataset={written(Path(folder), kind, count)}", "--dry-run"]
        out = Path(folder) / "out.txt"
        with out.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=folder)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{out.read_text()}")
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return used.ru_utime + used.ru_stime, peak / MB


def main() -> int:
    """Prints the table; returns 1 when rows cost more than the limits."""
    parser = argparse.ArgumentParser(description="Measure what rows cost before a run begins.")
    parser.add_argument("--rows", default="1000,20000,1000000", help="numbers of rows, the fewest first")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"layouts of {', '.join(KINDS)}")
    parser.add_argument("--limits", default="10,300", help="seconds and MB beyond the fewest rows, at most")
    options = parser.parse_args()
    counts, kinds = [int(count) for count in options.rows.split(",")], options.kinds.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"no layout '{unknown[0]}'")
    seconds, memory = (float(limit) for limit in options.limits.split(","))

    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| layout | rows | processor s | peak MB |\n|---|---|---|---|")
    over = []
    for kind in kinds:
        figures = []
        for count in counts:
            figures.append(measured(kind, count))
            print(f"| {kind} | {count:,} | {figures[-1][0]:.1f} | {figures[-1][1]:,.0f} |", flush=True)
        if figures[-1][0] - figures[0][0] > seconds or figures[-1][1] - figures[0][1] > memory:
            over.append(kind)
    if over:
        print(f"over the limits: {', '.join(over)}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
