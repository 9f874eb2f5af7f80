"""Runs a solution against prepared tests, and returns how each unit ended.

Theory of operation. Two sandboxes are joined by one socket (`Job.peer`). Of `calls` the tests run in the first and the
solution in the second; of `objects` both run in the second. The first, where nothing of the solution is, reports each
unit on its own output; what is not reported has not passed. A solution that ends or hangs ends the conversation: the
test that it ended on has failed, and the others go on with fresh sandboxes, up to a limit. A test that was late
although the processor was busy elsewhere is tried once more, one such test at a time, with more time on the clock.
Tests of `objects` that pass run again, several times, each in fresh sandboxes, with altered expectations
(`grpo.rewards.code.altered`): a solution that passes these, too, is wrong. Trouble of a sandbox, and a machine too busy
for a test even when it is tried again, is raised and never becomes a result.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import secrets
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo.plugins.errors import TransientError
from grpo.plugins.sandbox_job import TROUBLE, Job, JobResult, Limits, SandboxPool
from grpo.rewards.code.allowance import PATIENCE, Allowance, retry_lock, starved
from grpo.rewards.code.altered import altered_tests
from grpo.rewards.code.assertions import compared_constants, denies
from grpo.rewards.code.functions import open_tests
from grpo.rewards.code.guest.laws import UNLAWFUL
from grpo.rewards.code.guest.near import ALTERED
from grpo.rewards.code.guest.soft import ENDED, OBJECTS, REACHED
from grpo.rewards.code.guest.units import CHANGING
from grpo.rewards.code.guest_program import guest_job
from grpo.rewards.code.results import (
    OUTCOME_OF_JOB,
    Assurance,
    CodeResult,
    Outcome,
    UnitResult,
    UnusableTests,
    failed_loading,
)
from grpo.rewards.code.tests_plan import Plan
from grpo.rewards.code.ways import RUNS

REMEMBERING = -2
_MOST_ENDS = 4
_FEWEST = 3  # numbers of which most may not hold
_TESTS_OWN_SECONDS = 20.0
_INEXACT, _TICK = 1.1, 0.1
_REPORT_BYTES = 16 * 2**20


async def judge_tests(pool: SandboxPool, program: str, plan: Plan, *, allowance: Allowance) -> CodeResult:
    """Judges a solution by prepared tests. Raises TransientError: a sandbox failed; UnusableTests."""
    result, first = await _judged(pool, program, plan, allowance)
    tests = list(result.tests)
    if result.passed == result.count or (result.passed and not allowance.stop):
        doubts = await _changing(pool, program, plan, allowance, first.asked)
        if plan.kind == "objects" and (not allowance.stop or not doubts):
            doubts |= await _doubts(pool, program, plan, allowance)
        for unit, why in doubts.items():
            if unit < len(tests) and tests[unit].passed:
                tests[unit] = UnitResult("wrong_answer", why)
    result = replace(result, tests=tuple(tests))
    return result.until_failure() if allowance.stop else result


async def _changing(
    pool: SandboxPool, program: str, plan: Plan, allowance: Allowance, asked: list[Any]
) -> dict[int, str]:
    """Returns the units that fail where functions answer as they first do, to calls in another order, and the reason.

    Calls that are given what may be an answer, such as the number of an account, keep their place.
    """
    if not plan.stateless or not open_tests(plan.source, _functions(plan)):
        return {}
    result, _ = await _judged(pool, program, plan, replace(allowance, stop=False), run=REMEMBERING, asked=asked)
    return {unit: CHANGING for unit, test in enumerate(result.tests) if test.reason == CHANGING}


async def _doubts(pool: SandboxPool, program: str, plan: Plan, allowance: Allowance) -> dict[int, str]:
    """The units that a solution passes for another reason than that it is right, and the reason."""
    allowance = replace(allowance, stop=False)
    held, unlawful = _Held(), dict[int, str]()
    for run in range(RUNS):
        result, report = await _judged(pool, program, plan, allowance, run=run)
        unlawful |= {unit: test.reason for unit, test in enumerate(result.tests) if test.reason in UNLAWFUL}
        held.add(report.notes)
        if run + 1 >= altered_tests(plan.source, plan.names, 0)[1] and not held.objects:
            break
    doubts = unlawful | dict.fromkeys(held.units(), ALTERED)
    left = (plan.prepared.asking - held.reached) | (set(range(plan.units)) - held.ended)
    doubts |= dict.fromkeys(left, "it ends this test when another value is expected")
    return doubts


def _functions(plan: Plan) -> tuple[str, ...]:
    return (*(name for name in plan.names if plan.kind == "calls" or not name[:1].isupper()), "candidate")


class _Held:
    """Counts the altered assertions that held all the same.

    `objects`: objects of the solution were asked in some. `reached`: the units in which some were reached. `ended`: the
    units that came to their end.
    """

    def __init__(self) -> None:
        self.objects = False
        self.reached: set[int] = set()
        self.ended: set[int] = set()
        self._sure: set[int] = set()
        self._counted: dict[tuple[int, str], list[bool]] = {}  # by units and what may hold by chance

    def add(self, notes: dict[int, list[dict[str, int]]]) -> None:
        """Counts what one run found, by the units and each time they ran."""
        for unit, times in notes.items():
            for key in set[str]().union(*times):
                most = max(each.get(key, 0) for each in times)
                if key in (REACHED, ENDED):
                    (self.reached if key == REACHED else self.ended).add(unit)
                    continue
                if key == OBJECTS:
                    self.objects |= bool(most)
                    continue
                place, way, leaf, near, kind = key.split(" ")
                if most and (most == 2 or not kind):
                    self._sure.add(unit)
                groups = [f"{place} {way} {kind}"] if kind else []
                if kind and kind != "^":
                    groups += [f"{place} {way} {leaf}"] + [f"{place} near"] * (near == "1")
                groups += [f"{place} ~"] if kind == "~" else []
                for group in groups:
                    self._counted.setdefault((unit, group), []).append(bool(most))

    def units(self) -> set[int]:
        """The units with an assertion that held although no right solution has it hold.

        Numbers are the exception: they may equal half of all others, as remainders do, or all that are near.
        """
        return self._sure | {
            unit
            for (unit, group), held in self._counted.items()
            if (all(held) and len(held) >= _FEWEST if group.endswith("^") else _is_most(held))
        }


def _is_most(held: list[bool]) -> bool:
    return len(held) >= _FEWEST and sum(held) > (len(held) + 1) // 2


async def _judged(
    pool: SandboxPool,
    program: str,
    plan: Plan,
    allowance: Allowance,
    *,
    run: int | None = None,
    asked: Sequence[Any] = (),
) -> tuple[CodeResult, _Report]:
    """Judges a solution once; returns the result, and what its units noted and asked.

    `run`: the number of a run with altered tests, or REMEMBERING, in which equal calls get the first answer. `asked`:
    the calls that are made before.
    """
    tests: list[UnitResult] = []
    joined = _Report()
    long: set[int] = set()
    tried: set[int] = set()
    ends = 0
    while True:
        first = len(tests)
        async with retry_lock() if first in tried else contextlib.nullcontext():
            one = _Run(program, plan, first, allowance, PATIENCE if first in tried else 1, run, tuple(asked))
            report = await one.report(pool)
        joined.notes |= report.notes
        joined.asked += report.asked
        if report.starved and first + len(report.tests) - 1 not in tried:
            tried.add(first + max(0, len(report.tests) - 1))
            tests.extend(report.tests[:-1])
            continue
        if report.starved and report.waited is not None:
            raise TransientError(f"the machine was too busy: the program waited {report.waited:.1f} s for a processor")
        tests.extend(report.tests)
        long |= report.long
        ends += 1
        if report.over or ends == _MOST_ENDS:
            tests.extend([report.rest] * (plan.units - len(tests)))
        if len(tests) >= plan.units or (allowance.stop and not tests[-1].passed):
            tests = tests[: plan.units]
            if run is None:
                await _hold_to_limit(pool, tests, long, one)
            assurance: Assurance = "split" if plan.kind == "calls" else "guarded"
            return CodeResult(tuple(tests), plan.units, assurance, report.degraded), joined


async def _hold_to_limit(pool: SandboxPool, tests: list[UnitResult], long: set[int], run: _Run) -> None:
    """Runs long units once more alone, as a solution can turn off the timer that ends its process."""
    suspects = sorted(unit for unit in long if unit < len(tests) and tests[unit].passed)
    if not suspects:
        return
    loading = (await replace(run, first=run.plan.units, exactly=run.allowance.seconds).report(pool)).cpu
    for unit in suspects:
        most = (loading + run.allowance.seconds) * _INEXACT + _TICK
        alone = replace(run, first=unit, last=unit, exactly=most + _TICK, patience=PATIENCE)
        if (await alone.report(pool)).cpu > most:
            tests[unit] = UnitResult("time_cpu", "it kept its process from being ended in time")


@dataclass(slots=True)
class _Report:
    """What one run of the tests said.

    Attributes:
        tests: how the units ended, from the first that was to run.
        rest: the result of the units that are not among them, if they are not run again.
        over: running the others again would change nothing.
        starved: the last of them was late, but the solution had hardly any processor.
        waited: how long the solution waited for one, in seconds; None if unknown.
        long: the units that took more time on the clock than they may take of the processor.
        notes: by the units, what they noted each time they ran.
        asked: the calls of functions, in the form of plain data.
        cpu: processor time of the solution in all, in seconds.
    """

    tests: list[UnitResult] = field(default_factory=list)
    rest: UnitResult = field(default_factory=lambda: UnitResult("no_verdict", "the tests did not end"))
    over: bool = False
    starved: bool = False
    waited: float | None = None
    long: set[int] = field(default_factory=set)
    notes: dict[int, list[dict[str, int]]] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)
    cpu: float = 0.0
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the units from the first one on.

    `number`: of a run with altered tests; None for the tests as they are. `last`: the last unit to run; -1 for all.
    `exactly`: processor time of the whole run, in seconds; 0 for what its units may take.
    """

    program: str
    plan: Plan
    first: int
    allowance: Allowance
    patience: int
    number: int | None = None
    asked: tuple[Any, ...] = ()
    last: int = -1
    exactly: float = 0.0

    async def report(self, pool: SandboxPool) -> _Report:
        """Runs the units. Raises TransientError: a sandbox failed; UnusableTests: the tests cannot be judged."""
        [result] = await pool.run([self._pair(pool)])
        peer = result.peer
        if peer is None:
            raise TransientError(f"the sandbox failed ({result.outcome}): {result.reason or 'it runs no peers'}")
        if result.trouble:
            failed = result if result.outcome in TROUBLE else peer
            raise TransientError(f"the sandbox failed ({failed.outcome}): {failed.reason or 'it gave no reason'}")
        report = _Report(
            degraded=tuple(sorted({*result.degraded, *peer.degraded})), waited=peer.waited_seconds, cpu=peer.cpu_seconds
        )
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        for kind, *parts in lines:
            if kind == "unjudged":
                raise UnusableTests(parts[0])
            if kind == "asked":
                report.asked += parts[0]
            if kind == "unit":
                ended = _ended(parts[1], parts[2], peer, self.allowance)
                if parts[3] > self.allowance.seconds * _INEXACT + _TICK and not self.exactly:
                    report.long.add(parts[0])
                report.notes.setdefault(parts[0], []).append(parts[4])
                _note(report, parts[0] - self.first, ended)
                report.starved = parts[1] == "late" and starved(peer, result, self.allowance, self.patience)
        _conclude(report, lines[-1] if lines else ["silent"], result, peer, self.allowance, self.patience)
        return report

    def _source(self) -> str:
        if self.number is None:
            return self.plan.source
        if self.number == REMEMBERING:
            return open_tests(self.plan.source, _functions(self.plan))
        return altered_tests(self.plan.source, self.plan.names, self.number)[0]

    def _pair(self, pool: SandboxPool) -> Job:
        """Returns the trusted side, with the side of the solution as its peer.

        Their orders are fields of the plan and of this run, and token: the secret of what the tests say where the
        solution runs beside them; draws: the seed of all random numbers beside the solution; seconds: of the trusted
        side the time on the clock for loading and for each unit, of the other side the processor time, after which its
        process is ended.
        """
        plan, allowance, prepared = self.plan, self.allowance, self.plan.prepared
        last = plan.units - 1 if self.last < 0 else self.last
        number = -1 if self.number in (None, REMEMBERING) else self.number
        run: dict[str, Any] = {"first": self.first, "last": last, "run": number, "asked": self.asked}
        run["remembers"] = self.number == REMEMBERING
        tests = {**run, "sure": prepared.sure, "reaching": prepared.reaching, "items": dict(plan.items)}
        tests |= {name: getattr(plan, name) for name in ("setup", "names", "modules", "pytest")}
        tests["source"] = self._source()
        keeping = {
            "stop": allowance.stop,
            "token": secrets.token_hex(16),
            "seconds": allowance.wall_seconds * self.patience,
        }
        limits = allowance.limits(plan.units - self.first + 1)
        limits = replace(limits, cpu_seconds=self.exactly) if self.exactly else limits
        own = Limits(
            cpu_seconds=_TESTS_OWN_SECONDS,
            wall_seconds=limits.wall_seconds * self.patience + _TESTS_OWN_SECONDS,
            memory_bytes=Limits().memory_bytes,
            output_bytes=_REPORT_BYTES,
        )
        library = "pytest" if "pytest" in plan.modules else "python"
        profile = "pytest" if plan.pytest or "pytest" in self.program else library
        theirs = {"program": self.program, "seconds": allowance.seconds}
        if plan.kind == "calls":
            theirs |= {"setup": plan.setup, "names": plan.names, "in_place": plan.in_place}
            peer = guest_job(pool, "served", theirs, limits=limits, profile=profile)
            trusted = {**tests, **keeping, "numbers": plan.numbers}
            trusted["in_place"] = plan.in_place and self.number is None
            return guest_job(pool, "calling", trusted, limits=own, profile=library, peer=peer)
        theirs |= _compared(plan.source)
        theirs |= {"token": keeping["token"], "draws": _draws_of(self.program, plan.source)}
        peer = guest_job(pool, "together", {**tests, **theirs}, limits=limits, profile=profile)
        return guest_job(pool, "keeping", keeping, limits=own, profile="python", peer=peer)


@functools.lru_cache(maxsize=4096)
def _compared(tests: str) -> dict[str, Any]:
    """Orders about what tests compare: whether they deny an equality, and with which texts and numbers."""
    every = ast.parse(tests).body
    denied = denies(every, ast.NotEq, ast.Eq, "assertNotEqual")
    return {"denies": denied, "expected": compared_constants(every)}


def _draws_of(program: str, tests: str) -> int:
    return int.from_bytes(hashlib.sha256(ascii([program, tests]).encode()).digest()[:8])


_PASSED_OVER = UnitResult("no_verdict", "it did not run")


def _note(report: _Report, place: int, ended: UnitResult) -> None:
    """A unit that ran several times has passed if it did each time."""
    while len(report.tests) < place:
        report.tests.append(_PASSED_OVER)
    if place == len(report.tests):
        report.tests.append(ended)
    elif report.tests[place].passed or report.tests[place] is _PASSED_OVER:  # inherited tests run in their own order
        report.tests[place] = ended


def _conclude(
    report: _Report, last: list[Any], result: JobResult, peer: JobResult, allowance: Allowance, patience: int
) -> None:
    """Notes what the last line, or its absence, means for the units that were not reported."""
    if last[0] == "load":
        report.rest = _ended(last[1], last[2], peer, allowance, loading=True)
        report.starved = last[1] == "late" and starved(peer, result, allowance, patience)
        report.tests = [report.rest]
        report.over = True
    elif last[0] == "broken":
        report.rest = _ended("raised", last[1], peer, allowance)
        report.over = True
    elif last[0] == "done":
        report.over = True
    elif last[0] != "stopped" or not report.tests:
        outcome = _outcome_of_job(result, "no_verdict")
        report.rest = UnitResult(outcome, "the tests ended on what the program returned")
        report.tests.append(report.rest)
    else:
        report.rest = report.tests[-1]


def _ended(how: str, why: str, peer: JobResult, allowance: Allowance, *, loading: bool = False) -> UnitResult:
    if how == "passed":
        return UnitResult("accepted")
    if how in ("late", "gone", "garbled"):
        late: Outcome = "time_cpu" if peer.cpu_seconds >= allowance.seconds else "time_wall"
        outcome = late if how == "late" else _outcome_of_job(peer, "runtime_error")
        whys = {
            "time_cpu": f"more than {allowance.seconds:g} s of processor time",
            "time_wall": f"no answer within {allowance.wall_seconds:g} s",
            "runtime_error": "its process ended before the test did",
        }
        return UnitResult(outcome, peer.reason or whys.get(outcome, ""))
    if loading:
        return failed_loading(why)
    raised: Outcome = "memory" if why.startswith("MemoryError") else "runtime_error"
    return UnitResult(raised if how == "raised" else "wrong_answer", why)


def _outcome_of_job(result: JobResult, otherwise: Outcome) -> Outcome:
    if result.outcome == "signalled" and result.signal in (signal.SIGPROF, signal.SIGXCPU):
        return "time_cpu"
    return OUTCOME_OF_JOB.get(result.outcome, otherwise)
