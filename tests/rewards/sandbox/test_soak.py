"""Thousands of mixed jobs leave no process, mount, control group, descriptor or file; memory stays flat."""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo.plugins.sandbox_job import Job, JobResult, Limits
from grpo.rewards.sandbox import cgroup
from grpo.rewards.sandbox.spec import local

pytestmark = pytest.mark.slow

JOBS = 2000
_SHORT = Limits(cpu_seconds=0.1, wall_seconds=0.3, memory_bytes=128 * 2**20, output_bytes=10_000)
_MANY = Limits(cpu_seconds=0.2, wall_seconds=0.4, processes=6)
ECHO = Job("import os\nwhile True: os.write(3, os.read(3, 100) or b'end')")
# What to run, how often, and what must come of it.
KINDS: tuple[tuple[int, Job, tuple[str, ...]], ...] = (
    (60, Job("print(sum(map(int, input().split())))", stdin=b"1 2 3"), ("exited",)),
    (10, Job("print(open('a/b').read())", files={"a/b": b"x" * 1000}), ("exited",)),
    (10, Job("import os; os.write(3, b'hi'); print(os.read(3, 9))", peer=ECHO), ("exited",)),
    (5, Job("1 / 0"), ("exited",)),
    (5, Job("open('left', 'w').write('x' * 100000)"), ("exited",)),
    (3, Job("print('x' * 10**6)", limits=_SHORT), ("output",)),
    (2, Job("x = bytearray(2**30)", limits=_SHORT), ("memory",)),
    (2, Job("import os; os.abort()"), ("signalled",)),
    (1, Job("import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)"), ("policy",)),
    (1, Job("while True: pass", limits=_SHORT), ("time_cpu", "time_wall")),
    (1, Job("import os, time\nif os.fork() == 0: time.sleep(60)", limits=_MANY), ("exited",)),
)


def children() -> set[int]:
    """Returns the processes below this one, zombies too."""
    found, pending = set(), [os.getpid()]
    while pending:
        process = pending.pop()
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            for child in task.read_text().split():
                found.add(int(child))
                pending.append(int(child))
    return found


def held() -> dict[str, set[Any]]:
    """Returns what a leak would add to: names of its own for each thing, but for descriptors, whose numbers return."""
    gc.collect()
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    groups = {group.name for folder in set(cgroup.places().values()) for group in Path(folder).iterdir()}
    return {
        "processes": set(children()),
        "mounts": {line for line in mounts if "engine" not in line},  # container engines run beside these tests
        "groups": {name for name in groups if name.startswith(f"grpo-sandbox-{os.getpid()}-")},
        "descriptors": set(range(len(list(Path("/proc/self/fd").iterdir())))),
        "files": {path.name for path in Path("/tmp").glob("grpo-sandbox*")},
    }


def leaked(before: dict[str, set[Any]]) -> dict[str, set[Any]]:
    """Returns what is held now and was not before; what other tests left behind may end meanwhile."""
    return {kind: new for kind, now in held().items() if (new := now - before[kind])}


def resident() -> int:
    """Returns the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_thousands_of_mixed_jobs_leave_nothing_behind() -> None:
    before = held()
    kinds = random.Random(1).choices(KINDS, weights=[kind[0] for kind in KINDS], k=JOBS)
    pool = local(slots=4)
    sizes = []
    for start in range(0, JOBS, 500):
        part = kinds[start : start + 500]
        while part:
            results = asyncio.run(pool.run([job for _, job, _ in part]))
            done = list(zip(part, results, strict=True))
            part = [kind for kind, result in done if result.outcome == "overloaded"]  # by what runs beside this test
            wrong = [(job.program[:40], result) for (_, job, expected), result in done
                     if result.outcome not in (*expected, "overloaded")]  # fmt: skip
            assert wrong == []
        del results, done
        gc.collect()
        sizes.append(resident())
    assert len(children() - before["processes"]) <= 2 * 5, "a launcher and a zygote for each sandbox"
    pool.close()
    assert leaked(before) == {}
    assert sizes[-1] - sizes[0] < 16 * 2**20


def test_a_pool_that_is_dropped_or_a_slot_that_is_killed_leaves_nothing_behind() -> None:
    before = held()
    pool = local(slots=2)
    [first] = asyncio.run(pool.run([Job("print(1)")]))
    for process in children() - before["processes"]:
        if Path(f"/proc/{process}/stat").exists() and "python" in Path(f"/proc/{process}/comm").read_text():
            os.kill(process, 9)
            break
    [after] = asyncio.run(pool.run([Job("print(2)")]))
    assert (first.stdout, after.stdout) == (b"1\n", b"2\n")
    pool.close()
    pool.close()
    assert leaked(before) == {}


def test_a_caller_that_gives_up_ends_its_program() -> None:
    before = held()
    pool = local(slots=2)

    async def give_up() -> JobResult:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pool.run([Job("import time; time.sleep(60)")]), 0.3)
        [result] = await pool.run([Job("print(1)")])
        return result

    assert asyncio.run(give_up()).stdout == b"1\n"
    pool.close()
    assert leaked(before) == {}


@pytest.mark.core
def test_recorded_hostile_programs_harm_nothing(read_cases: Callable[[str], list[dict[str, Any]]]) -> None:
    pool = local(slots=2)
    try:
        for case in read_cases("cases/sandbox_cases.jsonl"):
            files = {name: base64.b64decode(text) for name, text in (case.get("files") or {}).items()}
            program = "\n".join([case["program"], *case["tests"]])
            stdin = (case.get("stdin") or "").encode()
            limits = Limits(cpu_seconds=1.0, wall_seconds=3.0)
            [result, honest] = asyncio.run(pool.run([Job(program, stdin, files, limits), Job("print(1)")]))
            assert not result.trouble, case["id"]
            assert honest.stdout == b"1\n", case["id"]
            expected = str(case["upstream_expected"])
            if "RunStatus." in expected:
                ran = result.outcome == "exited" and result.exit_code == 0
                assert ran == ("RunStatus.Success" in expected), case["id"]
    finally:
        pool.close()
