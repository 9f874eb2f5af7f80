"""One run of a program for all who ask what became of it, and none of them is given a trouble or a lucky clock."""

import asyncio
from typing import Any

import pytest

from grpo import Completion
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.errors import TransientError
from grpo.plugins.host import Host
from grpo.plugins.pools import close_pools, pool_of
from grpo.rewards.code.judgements import Judgements
from grpo.rewards.code.results import CodeResult, UnitResult
from grpo.rewards.sandbox.pool import LocalPool

PASSED, WRONG, LATE = UnitResult("accepted"), UnitResult("wrong_answer"), UnitResult("time_wall")


class Runs:
    """Gives results one after another, or raises them, and counts."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.count = 0

    async def __call__(self) -> CodeResult:
        self.count += 1
        await asyncio.sleep(0.01)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return CodeResult(tuple(result), 3)


async def together(judgements: Judgements, runs: Runs, *stops: bool) -> list[Any]:
    return await asyncio.gather(
        *(judgements.once("a program", runs, stop=stop) for stop in stops), return_exceptions=True
    )


def test_the_share_is_that_of_all_tests_also_where_the_judge_stopped_at_a_failure() -> None:
    stopped = CodeResult((PASSED, WRONG, PASSED, PASSED), 4).until_failure()
    assert (stopped.tests, stopped.fraction, stopped.outcome) == ((PASSED, WRONG), 0.25, "partial")


def test_those_who_ask_at_once_and_those_who_ask_later_share_one_run() -> None:
    judgements, runs = Judgements(), Runs([PASSED, WRONG, PASSED])

    async def ask() -> list[Any]:
        first = await together(judgements, runs, False, True, False)
        return [*first, *await together(judgements, runs, True, False)]

    results = asyncio.run(ask())
    assert [len(result.tests) for result in results] == [3, 2, 3, 2, 3]
    assert runs.count == 1
    asyncio.run(judgements.once("another program", Runs([PASSED]), stop=True))


def test_a_run_that_stopped_answers_all_questions_only_when_nothing_failed() -> None:
    judgements, runs = Judgements(), Runs([PASSED, WRONG], [PASSED, WRONG, PASSED])
    results = asyncio.run(together(judgements, runs, True, False))
    assert [len(result.tests) for result in results] == [2, 3]
    assert runs.count == 2
    judgements, runs = Judgements(), Runs([PASSED] * 3)
    asyncio.run(together(judgements, runs, True, False))
    assert runs.count == 1


def test_a_trouble_is_no_one_elses() -> None:
    judgements, runs = Judgements(), Runs(TransientError("no room"), [PASSED] * 3)
    first, second = asyncio.run(together(judgements, runs, False, False))
    assert isinstance(first, TransientError)
    assert second.passed == 3


def test_when_the_one_who_runs_it_is_cancelled_the_next_one_does() -> None:
    judgements, runs = Judgements(), Runs([PASSED] * 3, [PASSED] * 3)

    async def ask() -> list[Any]:
        tasks = [asyncio.create_task(judgements.once("a program", runs, stop=False)) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(ask())
    assert isinstance(first, asyncio.CancelledError)
    assert second.passed == 3


def test_what_the_clock_decided_is_not_kept() -> None:
    judgements, runs = Judgements(), Runs([PASSED, LATE, PASSED], [PASSED] * 3)
    assert [result.passed for result in asyncio.run(together(judgements, runs, False, False))] == [2, 2]
    assert asyncio.run(judgements.once("a program", runs, stop=False)).passed == 3


def test_only_so_many_are_kept() -> None:
    judgements, runs = Judgements(most=2), Runs(*[[PASSED] * 3] * 4)
    for name in ("a", "b", "a", "c", "a", "b"):
        asyncio.run(judgements.once(name, runs, stop=False))
    assert runs.count == 4


def test_only_so_many_tests_are_kept() -> None:
    judgements, runs = Judgements(most_tests=7), Runs(*[[PASSED] * 3] * 5)
    for name in ("a", "b", "a", "c", "c", "b", "a"):
        asyncio.run(judgements.once(name, runs, stop=False))
    assert runs.count == 5


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", ":credit=fraction"])
def test_the_verifier_and_the_reward_run_a_program_once(options: str) -> None:
    sandbox = "local:slots=3"
    program = "def double(x):\n    return 2 * x"
    row = {"tests": ["assert double(2) == 4", "assert double(0) == 0"], "entry_point": "double"}
    completions = [Completion(f"{program}  # {options} {n // 2}", row=row) for n in range(4)]
    pool = pool_of(sandbox)
    assert isinstance(pool, LocalPool)
    before = sum(slot.jobs for slot in pool._idle)
    host, spec = Host.discover(), f'code{options or ":credit=all"},weak=keep,sandbox="{sandbox}"'
    with Scorer([host.reward(spec), host.verifier(f'code:sandbox="{sandbox}"')]) as scorer:
        assert [outcome.score for outcome in scorer.score(completions)["code"]] == [1.0] * 4
        assert all(outcome.verdict.ok for outcome in scorer.judge(completions)["code"])
    after = sum(slot.jobs for slot in pool._idle)
    close_pools()
    assert after - before == 4  # two different programs, each with its tests in another sandbox
