"""Who is late: a program that sleeps, or one that the machine kept waiting."""

import pytest

from grpo.plugins.sandbox_job import JobResult
from grpo.rewards.code.allowance import Allowance, starved


def job(wall: float, cpu: float, waited: float | None) -> JobResult:
    return JobResult("exited", wall_seconds=wall, cpu_seconds=cpu, waited_seconds=waited)


@pytest.mark.parametrize(
    ("solution", "tests", "waited"),
    [
        (job(5.0, 0.01, 0.02), job(5.02, 0.01, None), False),  # it slept
        (job(5.0, 1.0, 3.9), job(5.02, 0.01, None), True),  # it waited for the processor
        (job(0.08, 0.01, 0.02), job(5.02, 0.01, None), True),  # its sandbox was given it when its time was nearly over
    ],
)
def test_a_program_that_the_machine_kept_waiting_is_tried_again(
    solution: JobResult, tests: JobResult, waited: bool
) -> None:
    assert starved(solution, tests, Allowance(seconds=2.0), 1) is waited
