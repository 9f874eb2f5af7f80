"""Times the sandboxes beside other ways to run a program, prints a table, and exits with 1 below a target.

    python benchmarks/sandbox.py [--jobs 300] [--rounds 5] [--image NAME] [--json] [--soak 20000]

The floor is a bare interpreter without any isolation, `python3 -I -S -c pass`; every ratio is executions per second of
processor time, so that it holds on a busy machine too. All rows are measured in turns, on this machine. What is not
installed (bwrap, a container engine) is left out and said. The split judge is the real one: a completion, four
assertions, its verdict.

The p99 overhead is what a sandbox adds to the clock for the slowest job in a hundred, with one job at a time: the 99th
percentile of the time from handing a job in until its result is there, minus the median time that the same program
takes when it is compiled and run in a warm interpreter, with no process of its own. That is the strictest reading:
against a program in a fresh interpreter the overhead would be below nothing. It needs a machine that does nothing else.

`--soak` runs that many mixed jobs and reports what they
left behind and how memory moved.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grpo.plugins import kernel
from grpo.plugins.errors import SandboxUnavailable
from grpo.plugins.sandbox_job import Job, Limits, SandboxPool
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import CodeResult
from grpo.rewards.code.task import Columns, task_of
from grpo.rewards.sandbox.docker_pool import DockerPool, connected
from grpo.rewards.sandbox.engine_image import made_image
from grpo.rewards.sandbox.interpreter import default_python
from grpo.rewards.sandbox.spec import docker as make_docker
from grpo.rewards.sandbox.spec import local

_SUBREAPER = 36  # prctl: orphans below this process become its children, and so does their processor time
TICKS = os.sysconf("SC_CLK_TCK")
PROGRAM = Job("print(sum(map(int, input().split())))", stdin=b"1 2 3")
SERVE = Job(
    "import json, os\nread, write = os.fdopen(3, 'r', closefd=False), os.fdopen(3, 'w', closefd=False)\n"
    "def add(a, b): return a + b\n"
    "for line in read:\n    write.write(json.dumps(add(*json.loads(line))) + '\\n'); write.flush()"
)
TASK = task_of(
    Columns(
        tests=["assert add(1, 2) == 3", "assert add(0, 0) == 0", "assert add(-1, 1) == 0", "assert add(5, 5) == 10"],
        entry_point="add",
    )
)
COMPLETION = "```python\ndef add(a, b):\n    return a + b\n```"
ASSERTS = Job(
    "import json, os\nread, write = os.fdopen(3, 'r', closefd=False), os.fdopen(3, 'w', closefd=False)\n"
    "def add(*values):\n    write.write(json.dumps(values) + '\\n'); write.flush()\n"
    "    return json.loads(read.readline())\n"
    "assert add(1, 2) == 3\nassert add(0, 0) == 0\nassert add(-1, 1) == 0\nassert add(5, 5) == 10\nprint('passed 4')",
    peer=SERVE,
)


def processor(processes: set[int]) -> float:
    """Returns the processor time, in seconds, of this process, what it started, and the named processes' trees."""
    total, pending, counted = 0, [os.getpid(), *processes], set()
    while pending:
        process = pending.pop()
        if process in counted:
            continue
        counted.add(process)
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
            for task in Path(f"/proc/{process}/task").glob("*/children"):
                pending += map(int, task.read_text().split())
        except OSError:
            continue
    return total / TICKS


def engine_processes() -> set[int]:
    """Returns the processes of the container engine, which work for us too."""
    names = {"dockerd", "containerd", "containerd-shim", "containerd-shim-runc-v2"}
    engine = set()
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() in {name[:15] for name in names}:
                engine.add(int(path.parent.name))
        except OSError:
            continue
    return engine


@dataclass(frozen=True, slots=True)
class Reading:
    """What `count` jobs took.

    Attributes:
        count: how many.
        busy: processor time in seconds.
        wall: seconds on the clock.
        times: seconds of each job, where they ran one after another.
    """

    count: int
    busy: float
    wall: float
    times: tuple[float, ...] = ()


Measure = Callable[[], Reading]


def summary(readings: list[Reading]) -> dict[str, float]:
    """Returns the figures of a row from its readings."""
    count, times = sum(one.count for one in readings), sorted(time for one in readings for time in one.times)
    row = {
        "cpu_ms": sum(one.busy for one in readings) / count * 1000,
        "per_second": count / sum(one.wall for one in readings),
    }
    if times:
        row["p50_ms"] = statistics.median(times) * 1000
        row["p99_ms"] = times[min(len(times) - 1, int(len(times) * 0.99))] * 1000
    return row


def measured(count: int, one: Callable[[], Any], processes: set[int]) -> Reading:
    """Times `count` calls one after another."""
    times = []
    busy = processor(processes)
    for _ in range(count):
        began = time.perf_counter()
        one()
        times.append(time.perf_counter() - began)
    return Reading(count, processor(processes) - busy, sum(times), tuple(times))


def in_bulk(pool: SandboxPool, count: int, job: Job, processes: set[int]) -> Reading:
    """Times `count` jobs side by side."""
    busy, began = processor(processes), time.perf_counter()
    results = asyncio.run(_run(pool, [job] * count))
    wall, busy = time.perf_counter() - began, processor(processes) - busy
    wrong = [result for result in results if result.exit_code != 0]
    if wrong:
        raise SystemExit(f"a job failed: {wrong[0]}")
    return Reading(count, busy, wall)


def judged(pool: SandboxPool, count: int) -> Reading:
    """Times the split judge of `count` completions side by side."""

    async def all_of_them() -> list[tuple[str | None, CodeResult]]:
        return await asyncio.gather(*(judge(pool, COMPLETION, TASK, allowance=Allowance()) for _ in range(count)))

    busy, began = processor(set()), time.perf_counter()
    results = asyncio.run(all_of_them())
    wall, busy = time.perf_counter() - began, processor(set()) - busy
    wrong = [result.line() for _, result in results if result.outcome != "accepted"]
    if wrong:
        raise SystemExit(f"a completion was misjudged: {wrong[0]}")
    return Reading(count, busy, wall)


def bare_time(count: int) -> float:
    """Returns the median time, in milliseconds, of the program in this interpreter, without a process of its own."""
    times = []
    for _ in range(count):
        sys.stdin, kept = io.StringIO(PROGRAM.stdin.decode()), sys.stdin
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                began = time.perf_counter()
                exec(compile(PROGRAM.program, "main.py", "exec"), {})
                times.append(time.perf_counter() - began)
        finally:
            sys.stdin = kept
    return statistics.median(times) * 1000


def rows(jobs: int, rounds: int, image: str) -> dict[str, dict[str, float]]:
    """Measures everything that this machine has, in rounds, so that what the machine does meanwhile meets all rows."""
    each, few = -(-jobs // rounds), max(2, jobs // 10 // rounds)
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        measures = _local_rows(each, few, runner, stack) | _docker_rows(each, few, image, runner, stack)
        readings: dict[str, list[Reading]] = {name: [] for name in measures}
        for _ in range(rounds):
            for name, measure in measures.items():
                readings[name].append(measure())
    return {name: summary(values) for name, values in readings.items()}


def _local_rows(each: int, few: int, runner: asyncio.Runner, stack: contextlib.ExitStack) -> dict[str, Measure]:
    python = default_python()
    alone, beside = (stack.enter_context(contextlib.closing(local(slots=slots))) for slots in (1, 4))
    for pool in (alone, beside):
        runner.run(_run(pool, [PROGRAM] * 20))
    judged(beside, 20)  # the tests are prepared once, as for a group of completions
    spawn = {"bwrap + cold python": partial(measured, few, lambda: _spawn(*_bwrap(python)), set())}
    return {
        "floor: python3 -I -S -c pass": partial(
            measured, each, lambda: _spawn(python, "-I", "-S", "-c", "pass"), set()
        ),
        **(spawn if shutil.which("bwrap") else {}),
        "local, one at a time": partial(measured, each, lambda: runner.run(_run(alone, [PROGRAM])), set()),
        "local, side by side": partial(in_bulk, beside, each, PROGRAM, set()),
        "local, ten tests of one program": partial(in_bulk, beside, each, PROGRAM, set()),
        "local, split judge of 4 asserts": partial(judged, beside, each),
    }


def _docker_rows(
    each: int, few: int, image: str, runner: asyncio.Runner, stack: contextlib.ExitStack
) -> dict[str, Measure]:
    try:
        client = connected("")
    except SandboxUnavailable as error:
        print(error, file=sys.stderr)
        return {}
    name = image or made_image(client)
    client.close()
    warm = stack.enter_context(contextlib.closing(make_docker(image=name, slots=4)))
    assert isinstance(warm, DockerPool)
    runner.run(_run(warm, [PROGRAM] * 20))
    container = warm._container._container.id
    engine = engine_processes()  # those that stay; the time of one that ends would be missing from a later reading
    return {
        "docker run --rm": partial(measured, max(1, few // 5), lambda: _docker_run(name), engine),
        "docker exec": partial(measured, few, lambda: _docker_exec(container), engine),
        "docker, one at a time": partial(measured, each, lambda: runner.run(_run(warm, [PROGRAM])), engine),
        "docker, side by side": partial(in_bulk, warm, each, PROGRAM, engine),
    }


def targets(found: dict[str, dict[str, float]]) -> list[tuple[str, float, float]]:
    """Returns each target: what is compared, the ratio that was measured, and the least that it shall be."""
    cpu = {name: row["cpu_ms"] for name, row in found.items()}
    floor = cpu["floor: python3 -I -S -c pass"]
    spawn = cpu.get("bwrap + cold python", floor)
    wanted = [
        ("local to the floor", floor / cpu["local, side by side"], 2.5),
        ("ten tests to a spawn for each", spawn / cpu["local, ten tests of one program"], 4.0),
        ("split judge to the floor", floor / cpu["local, split judge of 4 asserts"], 1 / 1.5),
    ]
    overhead = found["local, one at a time"]["p99_ms"] - bare_time(100)
    wanted.append(("5 ms to the p99 overhead of one job", 5.0 / overhead, 1.0))
    if "docker, side by side" in cpu:
        wanted += [
            ("docker to the floor", floor / cpu["docker, side by side"], 2.5),
            ("docker to docker exec", cpu["docker exec"] / cpu["docker, side by side"], 15.0),
        ]
    return wanted


def soak(count: int) -> None:
    """Runs many mixed jobs and prints what moved."""
    short = Limits(cpu_seconds=0.1, wall_seconds=0.3, memory_bytes=128 * 2**20, output_bytes=10_000)
    kinds = [PROGRAM] * 70 + [Job("open('x', 'w').write('y' * 9999)")] * 10 + [ASSERTS] * 10
    kinds += [Job("1 / 0")] * 5 + [Job("print('x' * 10**6)", limits=short)] * 3
    kinds += [Job("x = bytearray(2**30)", limits=short), Job("while True: pass", limits=short)]
    choose, pool = random.Random(1), local(slots=4)
    print(f"{'jobs':>8} {'per second':>11} {'resident MB':>12} {'descriptors':>12} {'trouble':>8}")
    try:
        for start in range(0, count, 2000):
            began, size = time.perf_counter(), min(2000, count - start)
            results = asyncio.run(_run(pool, choose.choices(kinds, k=size)))
            rate = size / (time.perf_counter() - began)
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            held, trouble = len(list(Path("/proc/self/fd").iterdir())), sum(result.trouble for result in results)
            print(f"{start + size:>8} {rate:>11.0f} {resident:>12.1f} {held:>12} {trouble:>8}", flush=True)
    finally:
        pool.close()


def main() -> int:
    """Prints the tables; returns 1 when a target is missed."""
    parser = argparse.ArgumentParser(description="Time the sandboxes beside the floor, bwrap and docker.")
    parser.add_argument("--jobs", type=int, default=300, help="programs for each row (default: 300)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that they are spread over (default: 5)")
    parser.add_argument("--image", default="", help="image for the engine; default: one of this machine's Python")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--soak", type=int, default=0, metavar="N", help="run N mixed jobs instead")
    options = parser.parse_args()
    if options.soak:
        soak(options.soak)
        return 0
    kernel.prctl(_SUBREAPER, 1)
    measured = rows(options.jobs, options.rounds, options.image)
    wanted = targets(measured)
    if options.json:
        print(
            json.dumps(
                {
                    "rows": measured,
                    "targets": [dict(zip(("name", "ratio", "target"), one, strict=True)) for one in wanted],
                }
            )
        )
    else:
        floor = measured["floor: python3 -I -S -c pass"]["cpu_ms"]
        print(f"{'':<34} {'cpu ms':>8} {'x floor':>8} {'per s':>8} {'p50 ms':>8} {'p99 ms':>8}")
        for name, row in measured.items():
            ends = "".join(f" {row[key]:>8.2f}" if key in row else f" {'':>8}" for key in ("p50_ms", "p99_ms"))
            print(f"{name:<34} {row['cpu_ms']:>8.2f} {floor / row['cpu_ms']:>8.2f} {row['per_second']:>8.1f}{ends}")
        for name, ratio, target in wanted:
            print(f"{name}: {ratio:.2f} (target {target:g}){'' if ratio >= target else '  MISSED'}")
    return 0 if all(ratio >= target for _, ratio, target in wanted) else 1


async def _run(pool: SandboxPool, jobs: list[Job]) -> list[Any]:
    return await pool.run(jobs)


def _spawn(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while True:  # what the command left to be reaped, as bwrap does, is its cost too
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _bwrap(python: str) -> list[str]:
    shown = [part for path in ("/usr", "/lib", "/lib64", sys.base_prefix) if Path(path).exists()
             for part in ("--ro-bind", path, path)]  # fmt: skip
    isolated = ["--unshare-all", "--die-with-parent", "--tmpfs", "/tmp", "--dev", "/dev", "--clearenv"]
    return ["bwrap", *shown, *isolated, python, "-I", "-S", "-c", "print(sum(map(int, '1 2 3'.split())))"]


def _docker_run(image: str) -> None:
    _spawn("docker", "run", "--rm", "--network", "none", image, "python3", "-I", "-S", "-c", "pass")


def _docker_exec(container: str) -> None:
    _spawn("docker", "exec", container, "python3", "-I", "-S", "-c", "pass")


if __name__ == "__main__":
    sys.exit(main())
