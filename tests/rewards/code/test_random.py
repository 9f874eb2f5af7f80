"""Programs drawn by lot: no honest one is blamed, and no mutant passes that plain Python would not pass."""

import asyncio

import pytest
from patience import tried_again

from grpo.plugins.pools import pool_of
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import UnusableTests
from grpo.rewards.code.task import Columns, task_of
from tests.rewards.code.random_programs import Case, honest, mutant

pytestmark = pytest.mark.usefixtures("sandbox_pools")
AT_ONCE = 64


def outcomes(cases: list[Case], *, plain: bool = False) -> list[str]:
    """How the programs did: an outcome for each, or "undecided"; `plain`: by Python, program and tests as one text."""

    async def one(case: Case) -> str:
        row = Columns(inputs=[""], outputs=["passed"]) if plain else Columns(tests=list(case.tests))
        task, program = task_of(row), case.program
        if plain:
            tests = [test + "\ntest_it()" * ("def test_it" in test) for test in case.tests]
            program = "\n".join([program, *tests, "print('passed')"])
        allowance = Allowance(seconds=2.0, stop=True)
        try:
            _, result = await tried_again(lambda: judge(pool_of(), program, task, allowance=allowance))
        except UnusableTests as fault:
            return f"undecided: {fault}"
        return result.line()

    async def every() -> list[str]:
        found: list[str] = []
        for first in range(0, len(cases), AT_ONCE):
            found += await asyncio.gather(*map(one, cases[first : first + AT_ONCE]))
        return found

    return asyncio.run(every())


@pytest.mark.parametrize("count", [40, pytest.param(5000, marks=pytest.mark.nightly)])
def test_no_honest_program_is_blamed(count: int) -> None:
    cases = [honest(seed) for seed in range(count)]
    judged = list(zip(cases, outcomes(cases), strict=True))
    assert [(case, line) for case, line in judged if not line.startswith("accepted")] == []


@pytest.mark.parametrize("count", [30, pytest.param(2500, marks=pytest.mark.nightly)])
def test_a_mutant_is_accepted_where_plain_python_accepts_it_and_nowhere_else(count: int) -> None:
    drawn = (mutant(honest(seed), seed) for seed in range(count))
    cases = [case for case in drawn if not any("pytest" in test for test in case.tests)]  # plain Python has none
    plain = outcomes(cases, plain=True)
    judged = outcomes(cases)
    differ = [
        (case, there, here)
        for case, there, here in zip(cases, plain, judged, strict=True)
        if here.startswith("accepted") != there.startswith("accepted")
    ]
    assert differ == []
    assert sum(not line.startswith("accepted") for line in plain) >= len(cases) // 6
