"""Times the light commands, each in a fresh process: seconds in, a table and exit code 1 above the limit out.

    python benchmarks/startup.py [--repeat 11] [--limit 0.3]

The first line is Python alone; the others contain it. The limit is for the median of the wall times; processor time is
shown beside it, since on a busy machine it is the steadier figure.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import grpo": [sys.executable, "-c", "import grpo"],
    "grpo --help": [str(Path(sys.executable).with_name("grpo")), "--help"],
    "grpo plugins": [str(Path(sys.executable).with_name("grpo")), "plugins"],
}
WITH_BYTECODE = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: list[str]) -> tuple[float, float]:
    """Returns the wall time and the processor time of one run of a command."""
    start, busy = time.perf_counter(), processor()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=WITH_BYTECODE)
    return time.perf_counter() - start, processor() - busy


def processor() -> float:
    """Returns the processor time of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Prints the table; returns 1 when a median is above the limit."""
    parser = argparse.ArgumentParser(description="Time the light commands, each in a fresh process.")
    parser.add_argument("--repeat", type=int, default=11, help="runs of each command (default: 11)")
    parser.add_argument("--limit", type=float, default=0.3, help="highest median in seconds (default: 0.3)")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error("--repeat must be 1 or more")

    slow = []
    print(
        f"{'command':<16} {'median s':>9} {'fastest s':>10} {'slowest s':>10} {'processor s':>12}   of {options.repeat}"
    )
    for name, command in COMMANDS.items():
        seconds(command)  # fills the disk cache and writes the bytecode
        wall, busy = zip(*(seconds(command) for _ in range(options.repeat)), strict=True)
        median = statistics.median(wall)
        print(f"{name:<16} {median:>9.3f} {min(wall):>10.3f} {max(wall):>10.3f} {statistics.median(busy):>12.3f}")
        if median > options.limit:
            slow.append(name)
    if slow:
        print(f"above {options.limit} s: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
