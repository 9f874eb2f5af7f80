"""The split judge: a solution and prepared tests in, how each test ended out.

Theory of operation. Tests and solution run in a sandbox each, joined by one socket (`Job.peer`). The tests report each
unit on their own output, in lines that begin with a secret of this run; what is not reported, or not by that secret,
has not passed. A solution that ends or hangs ends the conversation: the test that it ended on has failed, and the
others go on with fresh sandboxes, up to a limit. A test that was late although the processor was busy elsewhere is
tried once more, one such test at a time, with more time on the clock. Trouble of a sandbox, and a machine too busy for
even that, is raised and never becomes a result. Where a solution answered one question in two ways, all tests run once
more and hear the first answer each time (`guest.twins`): what passes by a changing answer alone is left undecided.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
from dataclasses import dataclass, field, replace
from typing import Any

from grpo.plugins.errors import TransientError
from grpo.plugins.sandbox_job import TROUBLE, Job, JobResult, Limits, SandboxPool
from grpo.rewards.code.allowance import PATIENCE, Allowance, retry_lock, starved
from grpo.rewards.code.assert_plan import Plan, leading_name
from grpo.rewards.code.guest_program import (
    arguments,
    compiled,
    preloaded_by,
    shared_program,
    solution_program,
    tests_program,
)
from grpo.rewards.code.results import (
    OUTCOME_OF_JOB,
    SYNTAX_ERRORS,
    CodeResult,
    Integrity,
    Outcome,
    UnitResult,
    UnusableTests,
)

_MOST_ENDS = 4
_TESTS_OWN_SECONDS = 20.0
_INEXACT, _TICK = 1.1, 0.1
_REPORT_BYTES = 16 * 2**20


async def judge_asserts(
    pool: SandboxPool,
    program: str,
    plan: Plan,
    *,
    entry_point: str = "",
    integrity: Integrity = "split",
    allowance: Allowance,
) -> CodeResult:
    """Judges a solution by prepared tests.

    Args:
        pool: where to run them.
        program: the solution.
        plan: the tests.
        entry_point: the function under test, or "".
        integrity: "shared" runs the solution and its tests in one sandbox, where a solution can fake its result.
        allowance: time, memory, and whether to stop early.

    Raises:
        TransientError: a sandbox failed.
        UnusableTests: the tests cannot be judged in two sandboxes.
    """
    tests: list[UnitResult] = []
    tried: set[int] = set()
    ends = 0
    changed = False
    while True:
        first = len(tests)
        async with retry_lock() if first in tried else contextlib.nullcontext():
            run = _Run(program, plan, first, entry_point, allowance, PATIENCE if first in tried else 1)
            report = await run.report(pool, integrity)
        if report.starved and first + len(report.tests) - 1 not in tried:
            tried.add(first + max(0, len(report.tests) - 1))
            tests.extend(report.tests[:-1])
            continue
        if report.starved and report.waited is not None:
            raise TransientError(f"the machine was too busy: the program waited {report.waited:.1f} s for a processor")
        tests.extend(report.tests)
        ends += 1
        if report.over or ends == _MOST_ENDS:
            tests.extend([report.rest] * (plan.units - len(tests)))
        changed = changed or report.changed
        if len(tests) >= plan.units or (allowance.stop and not tests[-1].passed):
            result = CodeResult(tuple(tests[: plan.units]), plan.units, integrity, report.degraded)
            if changed and result.passed == plan.units:
                again = _Run(program, plan, 0, entry_point, replace(allowance, stop=True), PATIENCE, consistent=True)
                _decided(await again.report(pool, integrity), plan.units)
            return result


@dataclass(slots=True)
class _Report:
    """What one run of the tests said.

    Attributes:
        tests: how the units ended, from the first that was to run.
        rest: what the units that are not among them are, if they are not run again.
        over: running the others again would change nothing.
        starved: the last of them was late, but the solution had hardly any processor.
        waited: how long the solution waited for one, in seconds, or None where that is not known.
        changed: the solution answered one question in two ways.
    """

    tests: list[UnitResult] = field(default_factory=list)
    rest: UnitResult = field(default_factory=lambda: UnitResult("no_verdict", "the tests did not end"))
    over: bool = False
    starved: bool = False
    waited: float | None = None
    changed: bool = False
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the units from the first one on; `consistent` repeats the first answer to each question."""

    program: str
    plan: Plan
    first: int
    entry_point: str
    allowance: Allowance
    patience: int
    consistent: bool = False

    async def report(self, pool: SandboxPool, integrity: Integrity) -> _Report:
        """Runs them; returns what they said.

        Raises:
            TransientError: a sandbox failed.
            UnusableTests: the tests cannot be judged in two sandboxes.
        """
        nonce = secrets.token_hex(16)
        [result] = await pool.run(
            [self._pair(nonce, preloaded_by(pool)) if integrity == "split" else self._alone(nonce)]
        )
        peer = result if integrity == "shared" else result.peer
        if peer is None:
            raise TransientError(f"the sandbox failed ({result.outcome}): {result.reason or 'it runs no peers'}")
        if result.trouble:
            failed = result if result.outcome in TROUBLE else peer
            raise TransientError(f"the sandbox failed ({failed.outcome}): {failed.reason or 'it gave no reason'}")
        report = _Report(degraded=tuple(sorted({*result.degraded, *peer.degraded})), waited=peer.waited_seconds)
        written = result.stdout.decode("ascii", "replace").splitlines()
        lines = [json.loads(line[len(nonce) + 1 :]) for line in written if line.startswith(f"{nonce} ")]
        for kind, *parts in lines:
            if kind == "unjudged":
                raise UnusableTests(parts[0])
            if kind == "unit":
                ended = _ended(parts[1], parts[2], peer, self.allowance)
                if ended.passed and _over(parts[3], peer, self.allowance):
                    ended = UnitResult("time_cpu", "it kept its process from being ended in time")
                _note(report, parts[0] - self.first, ended)
                report.changed = report.changed or parts[4]
                report.starved = parts[1] == "late" and starved(peer, result, self.allowance, self.patience)
        _conclude(report, lines[-1] if lines else ["silent"], result, peer, self.allowance, self.patience)
        return report

    def _limits(self) -> Limits:
        return self.allowance.limits(self.plan.units - self.first + 1)

    def _pair(self, nonce: str, preloaded: bool) -> Job:
        """Returns the tests, with the solution as their peer."""
        plan, limits = self.plan, self._limits()
        tests = arguments(
            nonce=nonce,
            setup=plan.setup,
            source=plan.source,
            code=compiled(plan.source),
            names=list(plan.names),
            entry_point=leading_name(self.entry_point),
            classes=list(plan.tested_classes),
            imported=list(plan.imported),
            optional=list(plan.optional),
            first=self.first,
            seconds=self.allowance.wall_seconds * self.patience,
            stop=self.allowance.stop,
            consistent=self.consistent,
        )
        solution = arguments(
            before=plan.setup,
            source=self.program,
            names=list(plan.names),
            plain_classes=list(plan.plain_classes),
            seconds=self.allowance.seconds,
        )
        own = Limits(
            cpu_seconds=_TESTS_OWN_SECONDS,
            wall_seconds=limits.wall_seconds * self.patience + _TESTS_OWN_SECONDS,
            memory_bytes=Limits().memory_bytes,
            output_bytes=_REPORT_BYTES,
        )
        peer = Job(solution_program(preloaded), stdin=solution, limits=limits)
        return Job(tests_program(preloaded), stdin=tests, limits=own, peer=peer)

    def _alone(self, nonce: str) -> Job:
        """Returns the solution and the tests in one program."""
        both = arguments(
            nonce=nonce,
            before=self.plan.setup,
            program=self.program,
            source=self.plan.source,
            names=list(self.plan.names),
            first=self.first,
            seconds=self.allowance.seconds,
            stop=self.allowance.stop,
        )
        return Job(shared_program(), stdin=both, limits=self._limits())


def _decided(again: _Report, units: int) -> None:
    """Looks at what the tests say where the first answer to each question is repeated.

    Raises:
        UnusableTests: they do not pass then, so that they passed by answers that changed, and nobody knows why.
    """
    if len(again.tests) < units or not all(test.passed for test in again.tests):
        raise UnusableTests("the program answers one question in two ways, and passes by that alone")


def _note(report: _Report, place: int, ended: UnitResult) -> None:
    """Notes how a unit ended; one that ran several times has passed if it did each time."""
    while len(report.tests) < place:
        report.tests.append(UnitResult("no_verdict", "the tests passed it over"))
    if place == len(report.tests):
        report.tests.append(ended)
    elif report.tests[place].passed:
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
    elif last[0] != "stopped":
        outcome = _outcome_of_job(result, "no_verdict")
        report.rest = UnitResult(outcome, "the tests ended on what the program returned")
        report.tests.append(report.rest)
    elif report.tests:
        report.rest = report.tests[-1]


def _ended(how: str, why: str, peer: JobResult, allowance: Allowance, *, loading: bool = False) -> UnitResult:
    """Returns how a unit ended, from the word that the tests have for it."""
    if how == "passed":
        return UnitResult("accepted")
    if how in ("late", "gone", "garbled"):
        return UnitResult(_outcome_of_end(how, peer, allowance), peer.reason)
    if loading:
        return UnitResult("compile_error" if why.startswith(SYNTAX_ERRORS) else "runtime_error", f"on loading: {why}")
    return UnitResult("runtime_error" if how == "raised" else "wrong_answer", why)


def _outcome_of_end(how: str, peer: JobResult, allowance: Allowance) -> Outcome:
    if how == "late":
        return "time_cpu" if peer.cpu_seconds >= allowance.seconds else "time_wall"
    return _outcome_of_job(peer, "runtime_error")


def _outcome_of_job(result: JobResult, otherwise: Outcome) -> Outcome:
    if result.outcome == "signalled" and result.signal in (signal.SIGPROF, signal.SIGXCPU):
        return "time_cpu"
    return OUTCOME_OF_JOB.get(result.outcome, otherwise)


def _over(seconds: float, peer: JobResult, allowance: Allowance) -> bool:
    """Returns whether a test that took so long on the clock surely took more processor time than it may.

    The process of the solution has a timer that ends it, but a solution can turn that off. It was off the processor
    for no longer in this test than in its whole life.
    """
    return seconds - (peer.wall_seconds - peer.cpu_seconds) > allowance.seconds * _INEXACT + _TICK
