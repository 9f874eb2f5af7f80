"""Times the light commands, each in fresh processes: a table out, and exit code 1 where one is above the limit.

    python benchmarks/startup.py [--repeat 21] [--limit 12]

The first line is Python alone; the others contain it, and `times` is how often they contain it. What other programs do
to a measurement is to lengthen it, so the shortest of all runs counts, of processor time and of wall time; the commands
take turns, so that a busy minute meets all of them. The limit is for both ratios.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

BARE = "python -c pass"
GRPO = str(Path(sys.executable).with_name("grpo"))
COMMANDS = {
    BARE: [sys.executable, "-c", "pass"],
    "import grpo": [sys.executable, "-c", "import grpo"],
    "grpo --help": [GRPO, "--help"],
    "grpo plugins": [GRPO, "plugins"],
}
WITH_BYTECODE = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: list[str]) -> tuple[float, float]:
    """Returns the processor time and the wall time of one run of a command."""
    start, busy = time.perf_counter(), processor()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=WITH_BYTECODE)
    return processor() - busy, time.perf_counter() - start


def processor() -> float:
    """Returns the processor time of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Prints the table; returns 1 when a command takes more than the limit."""
    parser = argparse.ArgumentParser(description="Time the light commands, each in fresh processes.")
    parser.add_argument("--repeat", type=int, default=21, help="runs of each command (default: 21)")
    parser.add_argument("--limit", type=float, default=12.0, help="times Python alone, at most (default: 12)")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error("--repeat must be 1 or more")

    for command in COMMANDS.values():
        seconds(command)  # fills the disk cache and writes the bytecode
    rounds = [{name: seconds(command) for name, command in COMMANDS.items()} for _ in range(options.repeat)]
    fastest = {name: tuple(min(one[name][kind] for one in rounds) for kind in (0, 1)) for name in COMMANDS}
    slow = []
    print(f"{'command':<16} {'processor s':>11} {'times':>6} {'wall s':>8} {'times':>6}   fastest of {options.repeat}")
    for name, (busy, wall) in fastest.items():
        ratios = busy / fastest[BARE][0], wall / fastest[BARE][1]
        print(f"{name:<16} {busy:>11.3f} {ratios[0]:>6.1f} {wall:>8.3f} {ratios[1]:>6.1f}")
        if max(ratios) > options.limit:
            slow.append(name)
    if slow:
        print(f"more than {options.limit:g} times Python alone: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
