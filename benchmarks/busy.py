"""Times a step beside other programs: each constant GOMP_SPINCOUNT, our rule, and plain TRL, in turn under each load.

    python benchmarks/busy.py [--load "1 loop" ...] [--rounds 3] [--steps 12] [--model DIR --dataset FILE ...]

The loads are programs that do nothing but compute: none, one, two, two that pause (half of the time, by turns of 0.2 to
2 s), one that works for 0.03 of each 0.1 s, one that works for 0.3 of each 1.5 s, and a reward that worker processes
compute while the trainer does. Options that are not named here go to step_time.py, whose steps these are. A figure is
the median of the rounds; with a constant our rule does nothing (core/processes/spinning.py). Beside it stand how many
times as long as the best constant the rule takes, and plain TRL as long as the rule. The first column has the load of
the machine before, which is 0 on a quiet one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import step_time

LOOP = "while True: pass"
PAUSING = """
import random, time
while True:
    length = random.uniform(0.2, 2)
    ends = time.monotonic() + length
    while time.monotonic() < ends: pass
    time.sleep(length)
"""
WORKING = """
import time
while True:
    ends = time.monotonic() + {busy}
    while time.monotonic() < ends: pass
    time.sleep({rest})
"""
REWARD = ["--reward", f"{Path(__file__).with_name('busy_reward.py')}:costly"]
LOADS: dict[str, tuple[list[str], list[str]]] = {  # programs, and options of step_time.py
    "nothing": ([], []),
    "1 loop": ([LOOP], []),
    "2 loops": ([LOOP] * 2, []),
    "2 that pause": ([PAUSING] * 2, []),
    "1 at 30%": ([WORKING.format(busy=0.03, rest=0.07)], []),
    "1 in bursts": ([WORKING.format(busy=0.3, rest=1.2)], []),
    "reward in workers": ([], REWARD),
}
RULE = "rule"
CONSTANTS = {"spin 0": "0", "spin 500": "500", "spin 2000": "2001"}  # 2000 itself is the rule's
SIDES = [*CONSTANTS, RULE, step_time.TRL]


@contextmanager
def beside(programs: Sequence[str]) -> Iterator[None]:
    """Runs programs meanwhile."""
    children = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def seconds(side: str, arguments: Sequence[str]) -> float:
    """Returns the median step of a side, in a process of its own."""
    os.environ.pop("GOMP_SPINCOUNT", None)
    if side in CONSTANTS:
        os.environ["GOMP_SPINCOUNT"] = CONSTANTS[side]
    step, _ = step_time.measure(step_time.TRL if side == step_time.TRL else "grpo", arguments)
    return step.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", nargs="+", choices=[*LOADS], default=[*LOADS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    options, others = parser.parse_known_args()
    heads = "".join(f"{side:>11}" for side in SIDES)
    print(f"{'beside':<19}{'before':>7}{heads}{'rule / best':>13}{'TRL / rule':>12}")
    for load in options.load:
        programs, flags = LOADS[load]
        arguments = ["--steps", str(options.steps), *others, *flags]
        before = os.getloadavg()[0]
        taken: dict[str, list[float]] = {side: [] for side in SIDES}
        with beside(programs):
            for _ in range(options.rounds):
                for side in SIDES:
                    taken[side].append(seconds(side, arguments))
        median = {side: statistics.median(values) for side, values in taken.items()}
        best = min(median[side] for side in CONSTANTS)
        figures = "".join(f"{median[side]:>11.3f}" for side in SIDES)
        ratios = f"{median[RULE] / best:>13.2f}{median[step_time.TRL] / median[RULE]:>12.2f}"
        print(f"{load:<19}{before:>7.1f}{figures}{ratios}", flush=True)


if __name__ == "__main__":
    main()
