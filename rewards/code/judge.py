"""Judging a completion's program by the tests of its row: text and task in, a result out."""

from __future__ import annotations

from grpo.plugins.sandbox_job import SandboxPool
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.assert_judge import judge_asserts
from grpo.rewards.code.comparison import Comparison
from grpo.rewards.code.output_judge import judge_outputs
from grpo.rewards.code.results import CodeResult, Integrity, UnitResult, all_failed
from grpo.rewards.code.task import Task


async def judge(
    pool: SandboxPool,
    completion: str,
    task: Task,
    *,
    comparison: Comparison = "trimmed",
    tolerance: float = 1e-6,
    integrity: Integrity = "split",
    allowance: Allowance,
) -> tuple[str | None, CodeResult]:
    """Returns the program of a completion, or None when it has none, and how it did.

    Args:
        pool: where programs run.
        completion: the text.
        task: what the program must do.
        comparison: how outputs are compared.
        tolerance: by how much numbers may differ with comparison="float".
        integrity: "shared" runs a solution and its assertions in one sandbox.
        allowance: time, memory, and whether to stop at the first test that fails.

    Raises:
        TransientError: a sandbox failed.
        UnusableTests: the tests cannot be used, or not in two sandboxes.
    """
    program = task.program(completion)
    plan = task.plan(safe=integrity == "split") if task.sources else None
    if program is None:
        count = len(task.inputs) if plan is None else plan.units
        return None, all_failed(UnitResult("compile_error", "no program in the completion"), count)
    if plan is not None:
        result = await judge_asserts(
            pool, program, plan, entry_point=task.entry_point, integrity=integrity, allowance=allowance
        )
    else:
        result = await judge_outputs(
            pool, program, task, comparison=comparison, tolerance=tolerance, allowance=allowance
        )
    return program, result
