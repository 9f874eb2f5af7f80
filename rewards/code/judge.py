"""Judges the program of a completion by the tests of its row."""

from __future__ import annotations

from typing import Literal

from grpo.plugins.sandbox_job import SandboxPool
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.output_judge import judge_outputs
from grpo.rewards.code.results import Assurance, CodeResult, Comparison, UnitResult, UnusableTests, all_failed
from grpo.rewards.code.task import Task
from grpo.rewards.code.tests_judge import judge_tests


async def judge(
    pool: SandboxPool,
    completion: str,
    task: Task,
    *,
    comparison: Comparison = "trimmed",
    tolerance: float = 1e-6,
    assurance: Literal["any", "split"] = "any",
    allowance: Allowance,
) -> tuple[str | None, CodeResult]:
    """Returns the program of a completion, or None, and how it did.

    With `assurance="split"` tests that must share a process with the solution are refused. Raises TransientError: a
    sandbox failed; UnusableTests: the tests cannot be used, or not with that assurance.
    """
    program = task.program(completion)
    plan = task.plan() if task.sources else None
    kind: Assurance = "guarded" if plan is not None and plan.kind == "objects" else "split"
    if kind == "guarded" and assurance == "split":
        raise UnusableTests("the tests run in one process with the solution, which assurance=split refuses")
    if program is None:
        count = len(task.inputs) if plan is None else plan.units
        return None, all_failed(UnitResult("compile_error", "no program in the completion"), count, assurance=kind)
    if plan is not None:
        result = await judge_tests(pool, program, plan, allowance=allowance)
    else:
        result = await judge_outputs(
            pool, program, task, comparison=comparison, tolerance=tolerance, allowance=allowance
        )
    return program, result
