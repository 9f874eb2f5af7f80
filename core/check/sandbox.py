"""Checks a sandbox with programs whose result is known and with hostile ones, each followed by an honest one.

Attacks that leave something behind run alone, so that the next job may find it; the others run side by side.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from grpo.core.check.attacks import BREACH, Attack, all_attacks
from grpo.core.check.pool import try_pool
from grpo.core.check.report import Findings, Report, title_of
from grpo.plugins._spec.binding import BoundSandbox
from grpo.plugins.host import bound_of
from grpo.plugins.sandbox_job import TROUBLE, Job, JobOutcome, JobResult, Limits, SandboxPool
from grpo.plugins.specs import SandboxSpec

HONEST = Job("print(sum(map(int, input().split())), open('a/b.txt').read())", stdin=b"1 2 3\n", files={"a/b.txt": b"x"})
_ANSWER = b"6 x\n"
_LIMIT = Limits(cpu_seconds=0.5, wall_seconds=1.5, memory_bytes=128 * 2**20, output_bytes=1000)
_TIMED: frozenset[JobOutcome] = frozenset({"time_cpu", "time_wall", "overloaded"})  # ended by a limit of time

# A program, what it runs under, and what must come of it: outcome, exit code, stdout.
_ENDINGS: tuple[tuple[str, Job, JobOutcome, int | None, bytes | None], ...] = (
    ("exit code 0", Job("print('é')"), "exited", 0, "é\n".encode()),
    ("exit code 7", Job("import sys; print('so far'); sys.exit(7)"), "exited", 7, b"so far\n"),
    ("an exception", Job("1 / 0"), "exited", 1, b""),
    ("input", Job("import sys; print(len(sys.stdin.read()))", stdin=b"x" * 300_000), "exited", 0, b"300000\n"),
    ("no input", Job("print(input())"), "exited", 1, b""),
    ("exact bytes", Job("import os; os.write(1, bytes(range(256)))"), "exited", 0, bytes(range(256))),
    ("output at its limit", Job("print('x' * 999)", limits=_LIMIT), "exited", 0, b"x" * 999 + b"\n"),
    ("output over its limit", Job("print('x' * 1001)", limits=_LIMIT), "output", None, None),
    ("its own files", Job("open('x', 'w').write('1'); print(open('x').read())"), "exited", 0, b"1\n"),
    ("a compile error", Job("int a = 1"), "compile_error", 1, b""),
    ("processor time", Job("while True: pass", limits=_LIMIT), "time_cpu", None, b""),
    ("time on the clock", Job("import time; time.sleep(60)", limits=_LIMIT), "time_wall", None, b""),
    ("memory", Job("x = bytearray(2**30)", limits=_LIMIT), "memory", None, b""),
    ("a signal", Job("import os; os.abort()"), "signalled", None, b""),
    ("the standard library", Job("import decimal, json, re, sqlite3, zlib, ctypes; print(1)"), "exited", 0, b"1\n"),
)


def check_sandbox(sandbox: str | SandboxSpec | BoundSandbox, *, attacks: Iterable[Attack] | None = None) -> Report:
    """Checks a sandbox: a SPEC ("local", "docker:image=python:3.12-slim"), a `SandboxSpec` or a bound sandbox.

    `attacks`: the hostile programs to run; default: all. Returns what does not hold; whatever the sandbox does, nothing
    is raised on its account. Raises UsageError for a SPEC that names no sandbox, or options that it does not take;
    SandboxUnavailable if this machine cannot run it.
    """
    bound = bound_of(sandbox, BoundSandbox)
    findings = Findings()

    def use(pool: SandboxPool) -> None:
        asyncio.run(_Check(pool, findings, tuple(all_attacks() if attacks is None else attacks)).all())

    try_pool(bound.make, SandboxPool, use, findings)
    return findings.report(title_of(bound))


class _Check:
    def __init__(self, pool: SandboxPool, findings: Findings, attacks: Sequence[Attack]) -> None:
        self._pool, self._findings, self._attacks = pool, findings, attacks
        self._capable = dict(pool.capabilities())

    async def all(self) -> None:
        checks: tuple[tuple[str, Callable[[str], Awaitable[None]]], ...] = (
            ("endings", self._endings),
            ("order and number of results", self._order),
            ("side by side", self._side_by_side),
            ("peers", self._peers),
            ("unknown profile", self._unknown),
            ("missing protections", self._protections),
        )
        for relation, check in checks:
            self._findings.tried(relation)
            await check(relation)
        alone = [attack for attack in self._attacks if attack.then]
        for attack in alone:
            await self._attack(attack)
        await asyncio.gather(*(self._attack(attack) for attack in self._attacks if not attack.then))

    async def _endings(self, relation: str) -> None:
        results = await self._pool.run([job for _, job, *_ in _ENDINGS])
        for (name, _, outcome, code, stdout), result in zip(_ENDINGS, results, strict=True):
            fits = result.outcome == outcome or (outcome == "time_cpu" and result.outcome in _TIMED)
            fits = fits and (code is None or result.exit_code == code) and stdout in (None, result.stdout)
            if not fits:
                self._findings.add("error", relation, f"{name}: expected {outcome} {code}, got {_words(result)}")
            if len(result.stdout) > _LIMIT.output_bytes and name.startswith("output over"):
                self._findings.add("error", relation, f"{name}: it kept {len(result.stdout)} bytes of 1000")

    async def _order(self, relation: str) -> None:
        jobs = [Job(f"print({number})") for number in range(30)]
        results = await self._pool.run(jobs)
        if [result.stdout for result in results] != [b"%d\n" % number for number in range(30)]:
            self._findings.add("error", relation, f"30 jobs came back as {[r.stdout for r in results][:40]}")
        if await self._pool.run([]) != []:
            self._findings.add("error", relation, "no job has a result")

    async def _side_by_side(self, relation: str) -> None:
        began = time.monotonic()
        results = await asyncio.gather(*(self._pool.run([HONEST]) for _ in range(8)))
        self._require(relation, [result for [result] in results])
        if time.monotonic() - began > 10:
            self._findings.add("warning", relation, "eight small jobs took more than ten seconds")

    async def _peers(self, relation: str) -> None:
        if not self._capable.get("peer"):
            self._findings.add("warning", relation, "it runs no peers, so tests that call functions cannot be judged")
            return
        echo = Job("import os\nwhile True:\n    os.write(3, os.read(3, 100).upper() or b'end')")
        [result] = await self._pool.run([Job("import os; os.write(3, b'abc'); print(os.read(3, 9))", peer=echo)])
        if result.stdout != b"b'ABC'\n" or result.peer is None:
            self._findings.add("error", relation, f"a message to a peer came back as {_words(result)}")
        [result] = await self._pool.run([Job("import os; print(os.read(3, 9))", peer=Job("raise SystemExit(4)"))])
        if result.stdout != b"b''\n" or result.peer is None or result.peer.exit_code != 4:
            self._findings.add("error", relation, f"a peer that ended at once: {_words(result)}")
        [result] = await self._pool.run([Job("print(1)", peer=replace(echo, program="while True: pass"))])
        if result.stdout != b"1\n" or result.peer is None:
            self._findings.add("error", relation, f"a peer that does not listen: {_words(result)}")

    async def _unknown(self, relation: str) -> None:
        for job in (Job("1", profile="no such language"), Job("1", files={"../out": b""}), Job("1", files={"/x": b""})):
            [result] = await self._pool.run([job])
            if result.outcome not in TROUBLE:
                self._findings.add("error", relation, f"{job.profile} {dict(job.files)}: {_words(result)}")

    async def _protections(self, relation: str) -> None:
        [result] = await self._pool.run([HONEST])
        for name in result.degraded:
            self._findings.add("warning", f"{relation}: {name}", "programs run without it on this machine")

    async def _attack(self, attack: Attack) -> None:
        relation = f"attack: {attack.name}"
        if attack.needs and not self._capable.get(attack.needs):
            self._findings.not_tried(f"{relation}: this sandbox has no {attack.needs}")
            return
        self._findings.tried(relation)
        [result] = await self._pool.run([Job(attack.program, limits=attack.limits)])
        if BREACH in result.stdout:
            got = [line for line in result.stdout.split(b"\n") if BREACH in line]
            self._findings.add("error", relation, f"it got through: {b'; '.join(got)[:300].decode(errors='replace')}")
        timed = result.outcome in _TIMED and not _TIMED.isdisjoint(attack.outcomes)
        if result.outcome not in attack.outcomes and not timed:
            self._findings.add("error", relation, f"expected {' or '.join(attack.outcomes)}, got {_words(result)}")
        [after] = await self._pool.run([Job(attack.then) if attack.then else HONEST])
        if attack.then and (BREACH in after.stdout or after.exit_code != 0):
            self._findings.add("error", relation, f"the next job found something: {_words(after)}")
        elif not attack.then:
            self._require(relation, [after])

    def _require(self, relation: str, results: Sequence[JobResult]) -> None:
        for result in results:
            if result.stdout != _ANSWER or result.exit_code != 0:
                self._findings.add("error", relation, f"an honest program suffered: {_words(result)}")


def _words(result: JobResult) -> str:
    text = f"{result.outcome} {result.exit_code}, stdout {result.stdout[:80]!r}"
    error = result.stderr.decode(errors="replace").strip().splitlines()
    return f"{text}{', ' + error[-1][:120] if error else ''}{', ' + result.reason[:120] if result.reason else ''}"
