"""How long one verdict takes on completions without a box or a block: the verifier `math` beside math-verify alone.

Run it on a quiet machine: python benchmarks/verifying.py [--rows 200] [--labelled FILE]. Both judge the same rows in
turns, each row once, since sympy remembers what it has simplified; math-verify is `verify(parse(gold),
parse(completion))` in this process, without the process and the time limit that `math` has. Rows are made up;
`--labelled` adds those of a JSONL file with the keys completion, gold and expected, their boxes taken off.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from grpo.core.text.printable import aligned
from grpo.rewards.math.verifier import math

Row = tuple[str, str, bool | None]

_WORK = (
    "We write down what is given. First, {n} + 3 = {m}. Then we multiply both sides by 2 and collect the terms. " * 3
)
_BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_KINDS: dict[str, Callable[[int], tuple[str, str]]] = {
    "a number in the last sentence": lambda n: (f"So she has {n} + 4 = {n + 4} apples left.", f"{n + 4}"),
    "a number behind a cue": lambda n: (f"The answer is {n}.\n\nI hope this helps!", f"{n + n % 2}"),
    "an expression behind a cue": lambda n: (f"The answer is {n}x^2 + 1.", f"${n}x^2+1$"),
    "another expression": lambda n: (f"**Answer:** 2\u221a3 + {n}", f"$2\\sqrt{{3}} - {n}$"),
    "a formula in LaTeX": lambda n: (f"Therefore, the value is $\\frac{{{n}}}{{7}}$.", f"$\\frac{{{2 * n}}}{{14}}$"),
    "no answer": lambda n: (f"I cannot solve this, but {n} may help in some way.", f"$x^2-{n}$"),
}


def made_up(kind: str, count: int) -> list[Row]:
    """Returns rows of one kind, right and wrong ones, no two alike; their labels are not known."""
    rows: list[Row] = []
    for n in range(11, 11 + count):
        text, gold = _KINDS[kind](n)
        rows.append((_WORK.format(n=n, m=n + 3) + text, gold, None))
    return rows


def labelled(path: Path) -> list[Row]:
    """Returns the rows of a file, their boxes taken off."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [(_BOX.sub(r"\1", row["completion"]), row["gold"], row["expected"]) for row in rows]


def compared(name: str, rows: list[Row]) -> tuple[str, ...]:
    """Returns the line of one kind: medians of both in milliseconds, their ratio, and how many each judged right."""
    times: tuple[list[float], list[float]] = ([], [])
    agreed = [0, 0]
    for number, (text, gold, label) in enumerate(rows):
        for side in (0, 1) if number % 2 else (1, 0):
            started = time.perf_counter()
            ok = math(text, gold).ok if side else alone(text, gold)
            times[side].append(time.perf_counter() - started)
            agreed[side] += ok is label
    theirs, ours = (1000 * statistics.median(side) for side in times)
    known = [f"{count}/{len(rows)}" for count in agreed] if rows[0][2] is not None else ["-", "-"]
    return name, str(len(rows)), f"{theirs:.2f}", f"{ours:.2f}", f"{ours / theirs:.2f}", *known


def alone(text: str, gold: str) -> bool:
    """Judges by math-verify alone."""
    from math_verify import parse, verify

    try:
        return bool(verify(parse(gold), parse(text)))
    except Exception:  # of a library, on texts as they come; math-verify would have to be guarded by its user
        return False


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--labelled", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.ERROR)
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} processors")
    compared("warm", made_up("an expression behind a cue", 4))
    rows = [compared(kind, made_up(kind, arguments.rows)) for kind in _KINDS]
    rows += [compared(path.name, labelled(path)) for path in arguments.labelled]
    heading = ("rows", "count", "math-verify ms", "math ms", "ratio", "math-verify right", "math right")
    print("\n".join(aligned([heading, *rows], right=True)))


if __name__ == "__main__":
    main()
