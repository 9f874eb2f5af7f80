"""The sandbox `local`: what a program sees, what ends it, what its result says. Attacks: test_sandbox_hostile.py."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Iterator

import pytest

from grpo.core.check.attacks import BREACH, all_attacks
from grpo.plugins.pools import close_pools, pool_of, run_jobs
from grpo.plugins.sandbox_job import Job, JobResult, Limits, SandboxPool
from grpo.rewards.sandbox.plan import Plans
from grpo.rewards.sandbox.pool import LocalPool


@pytest.fixture(scope="module", autouse=True)
def pool() -> Iterator[SandboxPool]:
    yield pool_of("local")
    close_pools()


def run(program: str, **job: object) -> JobResult:
    [result] = run_jobs([Job(program, **job)])  # type: ignore[arg-type]
    return result


def test_a_program_reads_its_input_and_its_files() -> None:
    result = run("print(input(), open('a/b').read())", stdin=b"one\ntwo\n", files={"a/b": b"three"})
    assert (result.outcome, result.exit_code, result.stdout, result.stderr) == ("exited", 0, b"one three\n", b"")
    assert result.degraded == ()
    assert not result.trouble


def test_a_program_copies_files_and_folders_with_their_times() -> None:
    program = "import shutil\nshutil.copy2('a/b', 'c')\nshutil.copytree('a', 'd')\n"
    program += "print(open('c').read(), open('d/b').read())"
    assert run(program, files={"a/b": b"x"}).stdout == b"x x\n"


def test_a_program_alone_uses_a_database_in_a_file() -> None:
    program = "import sqlite3\nfor value in (1, 2):\n    with sqlite3.connect('rows.db') as rows:\n"
    program += "        rows.execute('create table if not exists t (n)')\n"
    program += "        rows.execute('insert into t values (?)', (value,))\n"
    program += "print(sqlite3.connect('rows.db').execute('select sum(n) from t').fetchone())"
    assert run(program).stdout == b"(3,)\n"


def test_a_program_ends_as_under_the_interpreter() -> None:
    assert run("raise SystemExit(7)").exit_code == 7
    assert run("raise SystemExit('no')").stderr == b"no\n"
    assert run("import atexit; atexit.register(print, 'last'); print('first')").stdout == b"first\nlast\n"
    failed = run("def f():\n    1 / 0\nf()")
    assert failed.exit_code == 1
    assert b'File "main.py", line 2, in f\n    1 / 0\n' in failed.stderr
    assert b"runner" not in failed.stderr


def test_threads_may_be_allowed_where_processes_are_not() -> None:
    program = "import os, threading\nt = threading.Thread(target=print, args=('in a thread',))\nt.start()\n"
    assert b"can't start new thread" in run(program).stderr
    assert run(program, limits=Limits(threads=4)).stdout == b"in a thread\n"
    assert b"not permitted" in run(program + "os.fork()", limits=Limits(threads=4)).stderr
    bomb = "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    assert b"can't start new thread" in run(bomb, limits=Limits(threads=16)).stderr
    spin = "import threading\ndef spin():\n    while True: pass\n"
    spin += "for _ in range(6): threading.Thread(target=spin).start()"
    assert run(spin, limits=Limits(threads=16, cpu_seconds=0.3)).outcome == "time_cpu"


def test_nothing_that_a_program_leaves_in_memory_reaches_the_next_one() -> None:
    program = """
import mmap, sys
frame, pages = sys._getframe().f_back, {}
while frame:
    pages.update((id(page), page) for page in frame.f_locals.values() if isinstance(page, mmap.mmap))
    frame = frame.f_back
for page in pages.values():
    if not page.closed:
        print(page[64:68])
        page[64:68] = b"left"
"""
    results = run_jobs([Job(program)] * 12, "local:slots=2")
    assert {result.stdout for result in results} == {b"b'\\x00\\x00\\x00\\x00'\n"}


def test_a_device_of_the_host_can_be_used_and_not_touched() -> None:
    result = run("import os\nopen('/dev/null', 'w').write('x')\nos.utime('/dev/null')")
    assert b"Read-only file system" in result.stderr


@pytest.mark.parametrize(
    ("program", "limits", "outcome"),
    [
        ("while True: pass", Limits(cpu_seconds=0.2), "time_cpu"),
        ("import time; time.sleep(30)", Limits(wall_seconds=0.2), "time_wall"),
        ("x = bytearray(10**10)", Limits(), "memory"),
        ("print('x' * 2**21)", Limits(), "output"),
        ("import sys; sys.stderr.write('x' * 2**21)", Limits(), "output"),
        ("import os; os.abort()", Limits(), "signalled"),
        ("import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)", Limits(), "policy"),
        ("int a = 1", Limits(), "compile_error"),
    ],
)
def test_the_outcome_says_what_ended_a_program(program: str, limits: Limits, outcome: str) -> None:
    result = run(program, limits=limits)
    assert result.outcome == outcome
    assert run("print(1)").stdout == b"1\n"


def test_a_program_sees_the_interpreter_and_nothing_else() -> None:
    program = "import os; print(sorted(os.listdir('/')), os.listdir('.'), sorted(os.environ), os.getuid() != 0)"
    shown = run(program).stdout.decode()
    assert "'home'" not in shown
    assert "'proc'" not in shown
    assert "'root'" not in shown
    assert shown.endswith("[] ['HOME', 'LANG', 'PATH', 'PYTHONHASHSEED', 'TMPDIR'] True\n")


@pytest.mark.parametrize(
    "name",
    [
        "secrets of the host",
        "writing outside the own folder",
        "the network",
        "descriptors that came along",
        "other processes",
        "call: memfd_create",
        "call: who has a lock on a shared file",
        "raising limits",
        "files for the next job",
    ],
)
def test_one_attack_of_each_kind_gets_nowhere(name: str) -> None:
    """All of them are tried in the long lane, by `check_sandbox`."""
    [attack] = [attack for attack in all_attacks() if attack.name == name]
    result = run(attack.program, limits=attack.limits)
    assert result.outcome in attack.outcomes
    assert BREACH not in result.stdout
    assert BREACH not in run(attack.then or "print('nothing')").stdout


def test_a_program_has_no_capabilities() -> None:
    program = "import ctypes; header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()\n"
    program += "print(ctypes.CDLL(None).capget(header, sets), list(sets))"
    assert run(program).stdout == b"0 [0, 0, 0, 0, 0, 0]\n"


def test_without_a_filter_of_system_calls_landlock_still_holds() -> None:
    plans = Plans(sys.executable, allow_degraded=True)
    plans.give_up(["seccomp"])
    pool = LocalPool(plans, 2)
    [result] = asyncio.run(pool.run([Job("import socket; socket.socket(socket.AF_UNIX).bind('x')")]))
    pool.close()
    assert b"Permission denied" in result.stderr
    assert result.degraded == ("seccomp",)


def test_a_job_talks_to_its_peer_and_ends_it() -> None:
    peer = Job("import os, time\nos.write(3, os.read(3, 100).upper())\ntime.sleep(60)")
    result = run("import os; os.write(3, b'hello'); print(os.read(3, 100))", peer=peer)
    assert result.stdout == b"b'HELLO'\n"
    assert result.peer is not None
    assert (result.peer.outcome, result.peer.exit_code) == ("exited", None)


def test_a_job_reads_the_end_when_its_peer_ends() -> None:
    result = run("import os; print(os.read(3, 100))", peer=Job("raise SystemExit(3)"))
    assert result.stdout == b"b''\n"
    assert result.peer is not None
    assert result.peer.exit_code == 3


def test_results_come_in_the_order_of_the_jobs() -> None:
    results = run_jobs([Job(f"print({number})") for number in range(40)])
    assert [int(result.stdout) for result in results] == list(range(40))


def test_jobs_run_from_inside_a_running_loop_and_from_several_loops() -> None:
    async def inside() -> list[JobResult]:
        return run_jobs([Job("print(1)")])

    assert asyncio.run(inside())[0].stdout == b"1\n"
    assert asyncio.run(pool_of("local").run([Job("print(2)")]))[0].stdout == b"2\n"


def test_a_job_that_cannot_be_run_is_the_sandbox_s_trouble() -> None:
    for job in (
        Job("1", profile="cobol"),
        Job("1", files={"../x": b""}),
        Job("1", files={"\udcff": b""}),
        Job("1", peer=Job("1", files={"/x": b""})),
        Job("1", peer=Job("1", peer=Job("1"))),
        Job("1", limits=Limits(memory_bytes=-1)),
        Job("1", limits=Limits(cpu_seconds=float("nan"))),
        Job("1", limits=Limits(processes=0)),
    ):
        [result] = run_jobs([job])
        assert result.outcome == "sandbox_error"
        assert result.trouble
        assert result.reason


def test_a_machine_that_has_no_descriptors_left_is_overloaded_and_recovers() -> None:
    pool = pool_of("local")

    async def starved() -> JobResult:
        _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            [result] = await pool.run([Job("print(1)")])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        return result

    result = asyncio.run(starved())
    assert (result.outcome, result.trouble) == ("overloaded", True)
    assert "Too many open files" in result.reason
    assert run("print(2)").stdout == b"2\n"
