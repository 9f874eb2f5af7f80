"""Judges programs that print, by comparing each output with the expected one.

Outputs are compared in this process; an expected output never enters a sandbox. A program passes a test when it ends by
itself with status 0 and all of its output is what was expected. Trouble of a sandbox is raised.

- exact: the same bytes.
- trimmed: the same lines, but for blanks at the ends of lines and blank lines at the end.
- tokens: the same words, however they are set apart.
- float: like tokens; words that are numbers may differ by the tolerance, absolute or relative to the expected one.
"""

from __future__ import annotations

import math
import reprlib
from itertools import zip_longest

from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.errors import TransientError
from grpo.plugins.sandbox_job import JobResult, SandboxPool
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.guest_program import printing_job
from grpo.rewards.code.results import OUTCOME_OF_JOB, SYNTAX_ERRORS, CodeResult, Comparison, UnitResult
from grpo.rewards.code.task import Task

_NUMBER = lazy_pattern(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?")
_LONGEST_NUMBER = 400
_AT_ONCE = 16
_MOST_LATE = 4
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = 60
_LATE = ("time_cpu", "time_wall")


async def judge_outputs(
    pool: SandboxPool,
    program: str,
    task: Task,
    *,
    comparison: Comparison = "trimmed",
    tolerance: float = 1e-6,
    allowance: Allowance,
) -> CodeResult:
    """Judges a program by what it prints for each input. Raises TransientError: a sandbox failed.

    A program that was too slow for four tests is not run for the others: they count as failed in the same way.
    """
    jobs = [printing_job(pool, program, stdin=given, limits=allowance.limits()) for given in task.inputs]
    tests: list[UnitResult] = []
    degraded: set[str] = set()
    size = 1
    while len(tests) < len(jobs):
        first = len(tests)
        results = await pool.run(jobs[first : first + size])
        for result, expected in zip(results, task.outputs[first:], strict=False):
            if result.trouble:
                raise TransientError(f"the sandbox failed ({result.outcome}): {result.reason}")
            tests.append(_compared(result, expected, comparison, tolerance))
            degraded.update(result.degraded)
            if allowance.stop and not tests[-1].passed:
                return CodeResult(tuple(tests), len(jobs), degraded=tuple(sorted(degraded)))
        late = [test for test in tests if test.outcome in _LATE]
        if len(late) >= _MOST_LATE:
            tests.extend(late[-1:] * (len(jobs) - len(tests)))
        size = min(2 * size, _AT_ONCE)
    return CodeResult(tuple(tests), len(jobs), degraded=tuple(sorted(degraded)))


def _compared(result: JobResult, expected: bytes, comparison: Comparison, tolerance: float) -> UnitResult:
    if result.outcome in OUTCOME_OF_JOB:
        return UnitResult(OUTCOME_OF_JOB[result.outcome], result.reason)
    if result.exit_code != 0:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1][:300] if lines else f"exit status {result.exit_code}"
        return UnitResult("compile_error" if why.startswith(SYNTAX_ERRORS) else "runtime_error", why)
    if agrees(result.stdout, expected, comparison, tolerance):
        return UnitResult("accepted")
    return UnitResult("wrong_answer", f"another output than expected{difference(result.stdout, expected)}")


def difference(printed: bytes, expected: bytes) -> str:
    """Returns which line differs first, in words for people; "" where only blanks do."""
    for number, lines in enumerate(zip_longest(_lines(printed), _lines(expected)), start=1):
        if lines[0] != lines[1]:
            own, wanted = (None if line is None else _BRIEF.repr(line.decode("utf-8", "replace")) for line in lines)
            return f": line {number} is {own or 'missing'}, expected {wanted or 'no line'}"
    return ""


def agrees(printed: bytes, expected: bytes, comparison: Comparison = "trimmed", tolerance: float = 1e-6) -> bool:
    """Returns whether the printed output is the expected one."""
    if comparison == "exact":
        return printed == expected
    if comparison == "trimmed":
        return _lines(printed) == _lines(expected)
    printed_words, expected_words = printed.split(), expected.split()
    if len(printed_words) != len(expected_words):
        return False
    if comparison == "tokens":
        return printed_words == expected_words
    return all(
        word == other or _near(word, other, tolerance)
        for word, other in zip(printed_words, expected_words, strict=True)
    )


def _lines(text: bytes) -> list[bytes]:
    lines = [line.rstrip() for line in text.replace(b"\r\n", b"\n").split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _near(word: bytes, expected: bytes, tolerance: float) -> bool:
    if max(len(word), len(expected)) > _LONGEST_NUMBER:
        return False
    if not _NUMBER.fullmatch(word) or not _NUMBER.fullmatch(expected):
        return False
    value, target = float(word), float(expected)
    return math.isfinite(value) and math.isfinite(target) and abs(value - target) <= tolerance * max(1.0, abs(target))
