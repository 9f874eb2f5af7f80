"""The machine's trouble is told from a program's: kills from outside, and processors that others have."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine_trouble import MARK, busy, killing

from grpo.plugins.pools import close_pools, run_jobs
from grpo.plugins.sandbox_job import Job, JobResult, Limits
from grpo.rewards.sandbox import plan
from grpo.rewards.sandbox.cgroup import places
from grpo.rewards.sandbox.spec import local

pytestmark = pytest.mark.slow

_TRIES = 20
_SEVERAL = Limits(cpu_seconds=2.0, wall_seconds=4.0, processes=8)
_WAITS = f"{MARK}import time\ntime.sleep(0.5)\nprint('done')"
_COMPUTES = "import time\nwhile time.process_time() < {}: pass\n"
# Fifteen that wake up together, so that most of them wait for the others.
_WAITS_FOR_ITSELF = """
import os, threading, time
def work():
    while True:
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until: pass
        time.sleep(0.1 - time.time() % 0.1)
for _ in range(14):
    {start}
work()
"""


@pytest.fixture(autouse=True, scope="module")
def pools() -> Iterator[None]:
    yield
    close_pools()


def run(program: str, **job: object) -> JobResult:
    [result] = run_jobs([Job(program, **job)], "local:slots=2")  # type: ignore[arg-type]
    return result


@pytest.mark.core
@pytest.mark.parametrize("limits", [Limits(), _SEVERAL], ids=["one process", "several"])
def test_a_program_that_is_killed_from_outside_runs_again(limits: Limits) -> None:
    with killing(1, marked=True) as ended:
        result = run(_WAITS, limits=limits)
    assert len(ended) == 1
    assert (result.outcome, result.stdout) == ("exited", b"done\n")


def test_a_program_that_is_killed_from_outside_again_is_the_sandbox_s_trouble() -> None:
    with killing(2, marked=True):
        result = run(_WAITS)
    assert (result.outcome, result.trouble) == ("sandbox_error", True)
    assert "outside" in result.reason


@pytest.mark.parametrize("marked", [True, False])
def test_a_pair_of_which_one_is_killed_runs_again(marked: bool) -> None:
    peer = Job(f"{MARK}import os, time\ntime.sleep(0.5)\nos.write(3, b'word')")
    with killing(1, marked=marked) as ended:
        result = run("import os\nprint(os.read(3, 9))", peer=peer)
    assert len(ended) == 1
    assert (result.outcome, result.stdout) == ("exited", b"b'word'\n")


@pytest.mark.core
@pytest.mark.parametrize("limits", [Limits(), Limits(threads=4), _SEVERAL], ids=["one process", "threads", "several"])
@pytest.mark.parametrize(
    "program",
    [
        "os.kill(os.getpid(), 9)",
        "os.kill(0, 9)",
        "os.kill(-1, 9)",
        "os.killpg(os.getpgid(0), 9)",
        "signal.raise_signal(9)",
        "signal.pthread_kill(threading.get_ident(), 9)",
        "libc.syscall({'x86_64': 200, 'aarch64': 130}[os.uname().machine], os.getpid(), 9)",
        "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
        "main = os.getpid()\nif os.fork() == 0: os.kill(main, 9)\ntime.sleep(0.5)",
        "if os.fork() == 0: os.kill(-1, 9)\ntime.sleep(0.5)",
        "if os.fork() == 0: os.kill(0, 9)\ntime.sleep(0.5)",
        "main = os.getpid()\nos.setpgid(0, 0)\nif os.fork() == 0: os.kill(-main, 9)\ntime.sleep(0.5)",
        "main = os.getpid()\nos.setsid()\nif os.fork() == 0: os.killpg(main, 9)\ntime.sleep(0.5)",
        "child = os.fork()\nif child == 0: os.setpgid(0, 0); time.sleep(0.3); os.kill(0, 9)\n"
        "time.sleep(0.1)\nos.setpgid(0, child)\ntime.sleep(0.5)",
        "if libc.syscall({'x86_64': 56, 'aarch64': 220}[os.uname().machine], 9, 0, 0, 0, 0) == 0: os._exit(0)\n"
        "time.sleep(0.5)",
    ],
)
def test_no_program_can_feign_a_kill_from_outside(program: str, limits: Limits) -> None:
    imports = "import ctypes, os, resource, signal, threading, time\nlibc = ctypes.CDLL(None)\n"
    result = run(imports + program, limits=Limits(cpu_seconds=1.5, processes=limits.processes, threads=limits.threads))
    assert not result.trouble, result.reason
    assert result.signal != 9 or result.outcome == "time_cpu"


def test_a_program_may_end_its_children_and_keep_its_limits() -> None:
    program = (
        "import os, time\nchild = os.fork()\nif child == 0: {}time.sleep(9)\ntime.sleep(0.2)\n{}\nprint(os.wait()[1])"
    )
    for before, kill in (("", "os.kill(child, 9)"), ("os.setpgid(0, 0); ", "os.killpg(child, 9)")):
        assert run(program.format(before, kill), limits=_SEVERAL).stdout == b"9\n"
    asks = "import resource\nprint(resource.getrlimit(resource.RLIMIT_CPU)[0] > 0)\n"
    asks += (
        "resource.setrlimit(resource.RLIMIT_STACK, (2**20, 2**20))\nprint(resource.getrlimit(resource.RLIMIT_STACK))"
    )
    assert run(asks).stdout == b"True\n(1048576, 1048576)\n"


def test_a_program_that_waited_for_others_has_its_time() -> None:
    with busy(10):
        result = run(_COMPUTES.format(0.6) + "print('done')", limits=Limits(cpu_seconds=1.0, wall_seconds=1.4))
    if result.outcome == "overloaded":  # by others than those ten; the program is not blamed either
        assert result.trouble
        return
    assert (result.outcome, result.stdout) == ("exited", b"done\n")
    assert result.wall_seconds > 1.4
    assert result.waited_seconds is not None
    assert result.waited_seconds > 0.2


def test_a_machine_that_is_too_busy_is_overloaded_and_no_program_is_blamed() -> None:
    with busy(20):
        result = run(_COMPUTES.format(9), limits=Limits(cpu_seconds=5.0, wall_seconds=0.7))
    assert (result.outcome, result.trouble) == ("overloaded", True)
    assert "others had the processor for" in result.reason


@pytest.mark.parametrize(
    ("program", "limits"),
    [
        ("import time\ntime.sleep(60)", Limits(wall_seconds=1.0)),
        (_COMPUTES.format(0.05) + "time.sleep(60)", Limits(wall_seconds=1.0)),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", Limits(wall_seconds=1.0)),
        (_WAITS_FOR_ITSELF.format(start="threading.Thread(target=work).start()"), Limits(wall_seconds=1.0, threads=16)),
        (_WAITS_FOR_ITSELF.format(start="os.fork() or work()"), Limits(wall_seconds=1.0, processes=16)),
    ],
    ids=["sleeps", "computes and sleeps", "stops", "threads", "children"],
)
def test_no_program_can_make_itself_wait(program: str, limits: Limits) -> None:
    with busy(4):
        tries = (run(program, limits=limits) for _ in range(_TRIES))
        result = next((each for each in tries if each.outcome != "overloaded"), None)  # by others than those four
    assert result is not None, "it was overloaded each time"
    assert (result.outcome, result.trouble) == ("time_wall", False)


@pytest.mark.skipif("memory" not in places() or "cpu.stat" in places(), reason="needs control groups of version 1")
def test_a_machine_without_memory_is_told_from_a_program_over_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    two = "import os, time\nfor _ in range(2):\n    if os.fork() == 0:\n        x = bytearray(b'x') * (150 * 2**20)\n"
    two += "        time.sleep(1)\n        os._exit(0)\nfor _ in range(2): os.wait()"
    limits = Limits(memory_bytes=192 * 2**20, disk_bytes=2**20, processes=8)
    assert run(two, limits=limits).outcome == "memory"
    assert run("x = bytearray(2**30)").outcome == "memory"
    above = Path(places()["memory"]) / f"grpo-test-{os.getpid()}"
    above.mkdir()
    try:
        (above / "memory.limit_in_bytes").write_text(str(160 * 2**20))
        monkeypatch.setattr(plan, "places", lambda: {**places(), "memory": str(above)})
        pool = local(slots=2)
        try:
            takes = "x = bytearray(b'x') * (300 * 2**20); print('has it')"
            [starved, honest] = asyncio.run(pool.run([Job(takes), Job("print(1)")]))
            assert (starved.outcome, starved.trouble) == ("sandbox_error", True)
            assert "the machine had no memory left" in starved.reason
            assert honest.stdout == b"1\n"
            child = (
                "import os, time\nif os.fork() == 0:\n    " + takes.replace("\n", "\n    ") + "\nprint(os.wait()[1])"
            )
            [starved] = asyncio.run(pool.run([Job(child, limits=_SEVERAL)]))
            assert (starved.outcome, starved.trouble) == ("sandbox_error", True)
        finally:
            pool.close()
    finally:
        above.rmdir()
