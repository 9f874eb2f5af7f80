"""No program passes a test that it does not answer, and none takes the judge or the next program with it."""

import asyncio
import contextlib
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo.plugins.sandbox_pools import close_pools, pool_of
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import CodeResult
from grpo.rewards.code.task import Columns, task_of
from grpo.rewards.sandbox.docker_pool import connected
from grpo.rewards.sandbox.engine_image import made_image

pytestmark = pytest.mark.slow

_KINDS = ("", "_answers", "_channel", "_reach", "_traps")
_MODULES = [runpy.run_path(str(Path(__file__).with_name(f"cheats{kind}.py"))) for kind in _KINDS]
CHEATS: dict[str, str] = {name: source for module in _MODULES for name, source in module["CHEATS"].items()}
CHECK: str = _MODULES[0]["CHECK"]
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

    On the first sandbox every test runs for the first kind, everywhere else those up to the first that fails.
    """
    sandbox = docker_sandbox() if request.param == "docker" else "local"
    programs = {"honest": HONEST, **CHEATS, "honest at the end": HONEST}
    task = task_of(Columns(test=CHECK, entry_point="answer"))
    every_test = set() if request.param == "docker" else {"honest", "honest at the end", *_MODULES[0]["CHEATS"]}

    async def every() -> list[CodeResult]:
        judged = await asyncio.gather(
            *(
                judge(pool_of(sandbox), source, task, allowance=Allowance(seconds=1.0, stop=name not in every_test))
                for name, source in programs.items()
            )
        )
        return [result for _, result in judged]

    yield dict(zip(programs, asyncio.run(every()), strict=True))
    close_pools()


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_passes_nothing_but_what_it_answers(results: dict[str, CodeResult], name: str) -> None:
    assert results[name].passed == PARTIAL.get(name, 0), results[name].line()


@pytest.mark.parametrize("name", ["honest", "honest at the end"])
def test_an_honest_program_beside_them_passes(results: dict[str, CodeResult], name: str) -> None:
    assert results[name].outcome == "accepted"
