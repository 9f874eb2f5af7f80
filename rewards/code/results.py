"""Holds the results of a program's tests: one outcome per test, and one for all of them.

The outcomes of a score are facts about the program. Trouble of a sandbox is raised and is no outcome.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grpo.plugins._pattern import lazy_pattern

Outcome = Literal[
    "accepted",
    "wrong_answer",
    "partial",
    "compile_error",
    "runtime_error",
    "signalled",
    "time_cpu",
    "time_wall",
    "memory",
    "output",
    "policy",
    "no_verdict",
]
Comparison = Literal["exact", "trimmed", "tokens", "float"]
"""How outputs are compared; see `output_judge`."""
Assurance = Literal["split", "guarded"]
"""How surely a program cannot fake its result: tests elsewhere and plain data across, or in one guarded process."""

_SOURCE_LINE = lazy_pattern(r", \('<solution>', (\d+), .*\Z", re.DOTALL)  # how a SyntaxError's details cross
SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError", "UnicodeEncodeError", "UnicodeDecodeError")
_OF_JOB: tuple[Outcome, ...] = ("signalled", "time_cpu", "time_wall", "memory", "output", "policy")
OUTCOME_OF_JOB: dict[str, Outcome] = {outcome: outcome for outcome in _OF_JOB}


class UnusableTests(Exception):
    """The tests cannot be used, whatever the program is."""


@dataclass(frozen=True, slots=True)
class UnitResult:
    """How one test ended: "accepted", or why it did not pass, with a line for people."""

    outcome: Outcome
    reason: str = ""

    @property
    def passed(self) -> bool:
        return self.outcome == "accepted"


@dataclass(frozen=True, slots=True)
class CodeResult:
    """How a program did.

    `tests`: each test that was to run, in order, up to the first failure when the judge stopped. `count`: of all tests.
    `assurance`: "split" (tests and program in sandboxes of their own, or outputs compared outside) or "guarded".
    `degraded`: the protections that were missing.
    """

    tests: tuple[UnitResult, ...]
    count: int
    assurance: Assurance = "split"
    degraded: tuple[str, ...] = ()

    @property
    def passed(self) -> int:
        """How many tests passed."""
        return sum(test.passed for test in self.tests)

    @property
    def fraction(self) -> float:
        """The share of the tests that passed."""
        return self.passed / self.count

    @property
    def outcome(self) -> Outcome:
        """Accepted when every test passed; partial when some did; else how the first one failed."""
        if self.passed == self.count:
            return "accepted"
        return "partial" if self.passed else self.first_failure.outcome

    @property
    def first_failure(self) -> UnitResult:
        """The first test that did not pass; there must be one."""
        return next((test for test in self.tests if not test.passed), UnitResult("no_verdict"))

    def until_failure(self) -> CodeResult:
        """Returns the result of a run that stops at the first test that fails."""
        first = next((n for n, test in enumerate(self.tests, start=1) if not test.passed), len(self.tests))
        return replace(self, tests=self.tests[:first])

    def line(self) -> str:
        """Returns the result in one line."""
        left = self.count - len(self.tests)
        parts = [f"{self.outcome}: {self.passed} of {self.count} tests passed{f', {left} did not run' if left else ''}"]
        if self.outcome != "accepted":
            place = next((n for n, test in enumerate(self.tests, start=1) if not test.passed), len(self.tests) + 1)
            why = self.first_failure
            reason = _SOURCE_LINE.sub(r" (line \1)", why.reason).rstrip(": \n")  # an exception may have no text
            parts.append(f"test {place} {why.outcome}{': ' + reason if reason else ''}")
        if self.assurance == "guarded":
            parts.append("assurance guarded")
        if self.degraded:
            parts.append(f"degraded: {', '.join(self.degraded)}")
        return "; ".join(" ".join(part.split()) for part in parts)


def failed_loading(why: str) -> UnitResult:
    """Returns the result of every test of a program that failed before the first one."""
    return UnitResult("compile_error" if why.startswith(SYNTAX_ERRORS) else "runtime_error", f"on loading: {why}")


def all_failed(
    result: UnitResult, count: int, degraded: Sequence[str] = (), *, assurance: Assurance = "split"
) -> CodeResult:
    """Returns the result of a program that failed every test in the same way."""
    return CodeResult((result,) * count, count, assurance, tuple(degraded))
