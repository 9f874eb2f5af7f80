"""No program passes a test that it does not answer, and none takes the judge or the next program with it.

The task is `answer(x)`, which is `x * 7 + 3`. The tests compare in several ways and end with cases that no constant
passes. The programs of cheats.jsonl feign answers, end their process, search for what is expected, forge reports and
ask the kernel for a way out.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import tried_again

from grpo.plugins.pools import close_pools, pool_of
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import CodeResult
from grpo.rewards.code.task import Columns, task_of
from grpo.rewards.sandbox.docker_pool import connected
from grpo.rewards.sandbox.engine_image import made_image

pytestmark = pytest.mark.slow

CHECK = """
def check(candidate):
    assert candidate(1) == 10
    assert abs(candidate(2) - 17) < 1e-6
    assert candidate(3) in (24, 24.0)
    assert [candidate(4)] == [31]
    assert 38 == candidate(5)
    assert not candidate(6) != 45
    assert sorted([candidate(7), 0]) == [0, 52]
    assert {"r": candidate(8)} == {"r": 59}
    assert str(candidate(9)) == "66" and candidate(9).bit_length() == 7
    assert isinstance(candidate(10), int) and candidate(10) - 73 == 0
    assert all(r == e for r, e in zip(map(candidate, [11, 12]), [80, 87]))
    for number, result in enumerate(map(candidate, [13, 14])):
        assert result == 94 + 7 * number
"""
_ROWS = [json.loads(line) for line in Path(__file__).with_name("cheats.jsonl").read_text(encoding="ascii").splitlines()]
CHEATS: dict[str, str] = {row["name"]: row["program"] for row in _ROWS}
HONEST = "def answer(x):\n    return 7 * x + 3"
PARTIAL = {"the first tests only": 4}


def docker_sandbox() -> str:
    """Returns the SPEC of the sandbox docker with an image made here, which needs an engine at DOCKER_HOST."""
    with contextlib.closing(connected("")) as client:
        return f"docker:image={made_image(client)}"


SANDBOXES = [pytest.param("local", marks=pytest.mark.core), pytest.param("docker", marks=pytest.mark.nightly)]


@pytest.fixture(scope="module", params=SANDBOXES)
def results(request: pytest.FixtureRequest) -> Iterator[dict[str, CodeResult]]:
    """How every cheat did, judged side by side, with an honest program before and after them.

    On the first sandbox every test runs for those that say so, everywhere else those up to the first that fails.
    """
    sandbox = docker_sandbox() if request.param == "docker" else "local"
    programs = {"honest": HONEST, **CHEATS, "honest at the end": HONEST}
    task = task_of(Columns(test=CHECK, entry_point="answer"))
    first = {row["name"] for row in _ROWS if row["every_test"]}
    every_test = set() if request.param == "docker" else {"honest", "honest at the end", *first}

    async def one(name: str, source: str) -> CodeResult:
        allowance = Allowance(seconds=1.0, stop=name not in every_test)
        return (await tried_again(lambda: judge(pool_of(sandbox), source, task, allowance=allowance)))[1]

    async def every() -> list[CodeResult]:
        return await asyncio.gather(*(one(name, source) for name, source in programs.items()))

    yield dict(zip(programs, asyncio.run(every()), strict=True))
    close_pools()


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_passes_nothing_but_what_it_answers(results: dict[str, CodeResult], name: str) -> None:
    assert results[name].passed == PARTIAL.get(name, 0), results[name].line()


@pytest.mark.parametrize("name", ["honest", "honest at the end"])
def test_an_honest_program_beside_them_passes(results: dict[str, CodeResult], name: str) -> None:
    assert results[name].outcome == "accepted"
