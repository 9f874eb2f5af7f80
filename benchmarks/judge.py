"""Compares the judge of code with plain Python and real pytest on honest programs, and times it beside a plain spawn.

    python benchmarks/judge.py [--generated 5000] [--data FOLDER] [--rounds 5] [--killed 0.2] [--no-cost | --only-cost]

Honest programs are the canonical solutions of HumanEval and MBPP, completions of AceCode that plain Python accepts,
tests/rewards/code/honest.jsonl and programs drawn by lot (tests/rewards/code/random_programs.py). Each runs twice:
judged, and as plain Python beside its tests (by pytest where they have test functions), which is what a judge is to
agree with. A program that the judge refuses and plain Python accepts is printed; the exit code is then 1. Data sets
that are not in the folder are left out.

With --killed a process of the sandboxes, drawn by lot, is ended from outside about every so many seconds. A program
that it befalls is judged again, as in a run, and what is refused is compared with plain Python when that is over.

Costs are processor time, which holds on a busy machine too: a completion judged by `calls` with four assertions or
with a loop over four calls, and a program of `io` with one input, in times of `pool.run([Job("pass")])` and of a bare
`python3 -I -S -c pass`; and a test of a suite of `objects`, and of one that compares them, in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import COMPLETION, TASK, processor

from grpo.plugins import kernel
from grpo.plugins.errors import TransientError
from grpo.plugins.sandbox_job import Job, SandboxPool
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.guest.customs import SOLUTION_MODULES
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import UnusableTests
from grpo.rewards.code.task import Columns, Task, task_of
from grpo.rewards.sandbox.interpreter import default_python
from grpo.rewards.sandbox.spec import local

ROOT = Path(__file__).resolve().parent.parent
_SUBREAPER = 36  # prctl: orphans below this process become its children, and so does their processor time
_AT_ONCE, _TRIES = 8, 3
_TRIES_AMONG_KILLS = 12
_COUNT = 40  # programs of one reading
_PRELUDE = f"""\
import sys
for name in {SOLUTION_MODULES!r}:
    sys.modules[name] = sys.modules[__name__]
__near__ = lambda one, two, tolerance: one == two
"""
_RUN = "import sys, pytest\nsys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'test_program.py']))"
_TEST = """\
def test_{0}():
    stack = Stack([{0}, 2])
    assert stack.pop() == 2
    assert stack.pop() == {0}
"""
_LOOP = "for n in range(4):\n    value = add(n, 1)\n    assert abs(value - n - 1) < 1e-9"
_SUITE = "\n".join(map(_TEST.format, range(10)))
_MONEY = "class Money:\n    def __init__(self, n): self.n = n\n    def __eq__(self, other): return self.n == other.n\n"
_EQUAL = "\n".join(f"def test_{n}():\n    assert Money({n}) == Money({n})" for n in range(10))
_STACK = """\
class Stack:
    def __init__(self, items):
        self.items = items
    def pop(self):
        return self.items.pop()
"""


@dataclass(frozen=True, slots=True)
class Honest:
    """A program that is right."""

    source: str
    name: str
    completion: str
    row: dict[str, Any]


def honest_programs(data: Path, generated: int) -> Iterator[Honest]:
    """Yields the programs of every source that is there."""
    path = data / "humaneval" / "HumanEval.jsonl.gz"
    if path.is_file():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                yield Honest("HumanEval", row["task_id"], row["canonical_solution"], row)
    path = data / "mbpp" / "mbpp.jsonl"
    if path.is_file():
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            yield Honest("MBPP", str(row["task_id"]), row["code"], row)
    path = data / "cases" / "acecode_completions.jsonl"
    if path.is_file():
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if row["plain_python_pass_rate"] == 1:
                yield Honest("AceCode", row["id"], row["completion"], row)
    path = ROOT / "tests" / "rewards" / "code" / "honest.jsonl"
    for case in map(json.loads, path.read_text(encoding="ascii").splitlines()):
        yield Honest("honest.jsonl", case["name"], case["completion"], case["row"])
    sys.path.insert(0, str(ROOT))
    from tests.rewards.code.random_programs import honest

    for seed in range(generated):
        drawn = honest(seed)
        yield Honest("generated", f"seed {seed}", f"```python\n{drawn.program}\n```", {"tests": list(drawn.tests)})


def task_for(row: dict[str, Any]) -> Task:
    """Returns the task of a row."""
    return task_of(Columns(**{name: row[name] for name in Columns.__dataclass_fields__ if name in row}))


async def verdict(pool: SandboxPool, program: Honest, tries: int) -> tuple[str, str]:
    """Returns by which judge a program is judged, and how it did; trouble is tried again, and then masks it."""
    kind = "?"
    for left in reversed(range(tries)):
        try:
            task = task_for(program.row)
            kind = task.plan().kind if task.sources else "io"
            _, result = await judge(pool, program.completion, task, allowance=Allowance(15.0, stop=True))
        except UnusableTests as fault:
            return kind, f"undecided: {fault}"
        except TransientError as trouble:
            if not left:
                return kind, f"masked: {trouble}"
        else:
            return kind, result.line()
    raise AssertionError("every try ends")


async def reference(pool: SandboxPool, program: Honest) -> bool:
    """Returns whether plain Python, or real pytest, accepts a program."""
    task = task_for(program.row)
    text = task.program(program.completion) or ""
    if not task.sources:
        return True  # a program that prints is run as it is by the judge too
    tests = "\n".join((task.before, *task.sources))
    if "def check(candidate)" in tests:
        tests += f"\ncheck({task.entry_point})"
    whole = "\n".join((_PRELUDE, text, tests))
    job = Job(whole)
    if "def test" in tests:
        job = Job(_RUN, files={"test_program.py": whole.encode()}, profile="pytest")
    [result] = await pool.run([job])
    return result.exit_code == 0


def processes_below(process: int) -> list[int]:
    """Returns the processes that a process started, and those that these started."""
    numbers: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                numbers += [child, *processes_below(child)]
    return numbers


async def kill_again_and_again(seconds: float) -> None:
    """Ends a process of the sandboxes about every so many seconds, until it is cancelled; prints how many."""
    rng, killed = random.Random(0), 0
    try:
        while True:
            await asyncio.sleep(rng.uniform(0.5, 1.5) * seconds)
            if below := processes_below(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(rng.choice(below), signal.SIGKILL)
                    killed += 1
    finally:
        print(f"{killed} processes were ended from outside", flush=True)


def agreement(programs: list[Honest], pool: SandboxPool, killed: float = 0.0) -> int:
    """Prints how the judge and plain Python agree; returns how many programs the judge alone refuses.

    Args:
        programs: the programs.
        pool: where they run.
        killed: a process of the pool is ended every so many seconds; 0 for never.
    """
    turn = asyncio.Semaphore(_AT_ONCE)

    async def judged(program: Honest) -> tuple[str, str]:
        async with turn:
            return await verdict(pool, program, _TRIES_AMONG_KILLS if killed else _TRIES)

    async def accepted_by_python(program: Honest, kind: str, line: str) -> bool:
        if kind == "?" or (killed and line.startswith("accepted")):
            return True
        async with turn:
            return await reference(pool, program)

    async def every() -> tuple[list[tuple[str, str]], list[bool]]:
        killer = asyncio.create_task(kill_again_and_again(killed)) if killed else None
        verdicts = await asyncio.gather(*map(judged, programs))
        if killer is not None:
            killer.cancel()
        plain = zip(programs, verdicts, strict=True)
        return verdicts, await asyncio.gather(*(accepted_by_python(program, *each) for program, each in plain))

    counts: Counter[tuple[str, str, str]] = Counter()
    blamed = 0
    for program, (kind, line), plain in zip(programs, *asyncio.run(every()), strict=True):
        accepted = line.startswith("accepted")
        counts[program.source, kind, "programs"] += 1
        counts[program.source, kind, "accepted"] += accepted
        counts[program.source, kind, "agreed"] += accepted == plain
        counts[program.source, kind, "masked"] += line.startswith("masked")
        if plain and not accepted and not line.startswith("masked"):
            blamed += 1
            print(f"refused: {program.source}, {program.name} ({kind}): {line}", flush=True)
    print(f"{'source':<14} {'judge':<8} {'accepted':>9} {'masked':>9} {'programs':>9} {'as plain Python':>16}")
    for source, kind in sorted({(source, kind) for source, kind, _ in counts}):
        row = (counts[source, kind, what] for what in ("accepted", "masked", "programs", "agreed"))
        print("{:<14} {:<8} {:>9} {:>9} {:>9} {:>16}".format(source, kind, *row))
    return blamed


def costs(pool: SandboxPool, rounds: int) -> None:
    """Prints what the judges cost."""
    suite, printing = task_of(Columns(tests=_SUITE)), task_of(Columns(inputs=["1 2"], outputs=["3"]))
    loop, equal = task_of(Columns(tests=_LOOP, entry_point="add")), task_of(Columns(tests=_EQUAL))
    sums = "```python\nprint(sum(map(int, input().split())))\n```"

    async def accepted(completion: str, task: Task) -> None:
        _, result = await judge(pool, completion, task, allowance=Allowance())
        if result.outcome != "accepted":
            raise SystemExit(f"an honest program was refused: {result.line()}")

    async def bare() -> None:
        process = await asyncio.create_subprocess_exec(default_python(), "-I", "-S", "-c", "pass")
        await process.wait()

    rows: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "interpreter": bare,
        "spawn": lambda: pool.run([Job("pass")]),
        "io": lambda: accepted(sums, printing),
        "calls": lambda: accepted(COMPLETION, TASK),
        "calls in a loop": lambda: accepted(COMPLETION, loop),
        "objects": lambda: accepted(f"```python\n{_STACK}\n```", suite),
        "equal objects": lambda: accepted(f"```python\n{_MONEY}\n```", equal),
    }
    busy = dict.fromkeys(rows, 0.0)

    async def reading(make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        turn = asyncio.Semaphore(_AT_ONCE)

        async def each() -> None:
            async with turn:
                await make()

        await asyncio.gather(*(each() for _ in range(_COUNT)))

    for number in range(rounds + 1):
        for name, make in rows.items():
            before = processor(set())
            asyncio.run(reading(make))
            busy[name] += (processor(set()) - before) * (number > 0)  # the first round warms up
    milliseconds = {name: spent / rounds / _COUNT * 1000 for name, spent in busy.items()}
    for name in ("io", "calls", "calls in a loop"):
        spawns, bares = (milliseconds[name] / milliseconds[floor] for floor in ("spawn", "interpreter"))
        print(f"{name}: {spawns:.2f} times a warm sandbox, {bares:.2f} times a bare interpreter (target 1.5)")
    for name in ("objects", "equal objects"):
        print(f"{name}: {milliseconds[name] / 10:.1f} ms a test in a suite of 10 (target 40)")


def main() -> int:
    """Prints the tables; returns 1 when the judge refuses a program that plain Python accepts."""
    folder = Path(os.environ.get("GRPO_TEST_DATA", ROOT.parent / "shared" / "data"))
    parser = argparse.ArgumentParser(description="Compare the judge of code with plain Python, and time it.")
    parser.add_argument("--generated", type=int, default=200, metavar="N", help="programs drawn by lot (default: 200)")
    parser.add_argument("--data", type=Path, default=folder, help="folder with humaneval/ and mbpp/")
    parser.add_argument("--rounds", type=int, default=5, help="readings of each cost (default: 5)")
    parser.add_argument("--killed", type=float, default=0.0, metavar="SECONDS", help="end a process that often")
    parser.add_argument("--no-cost", action="store_true", help="only the agreement")
    parser.add_argument("--only-cost", action="store_true", help="only the costs")
    options = parser.parse_args()
    kernel.prctl(_SUBREAPER, 1)
    blamed = 0
    with contextlib.closing(local(slots=4)) as pool:
        if not options.only_cost:
            blamed = agreement(list(honest_programs(options.data, options.generated)), pool, options.killed)
        if not options.no_cost:
            costs(pool, options.rounds)
    return min(blamed, 1)


if __name__ == "__main__":
    sys.exit(main())
