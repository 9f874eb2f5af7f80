"""Cheats of many families and honest programs in odd ways: each gets its verdict, and none abstains at will."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import tried_again

from grpo.plugins.pools import close_pools, pool_of
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import UnusableTests
from grpo.rewards.code.task import Columns, task_of

pytestmark = pytest.mark.slow


def _cases(file: str) -> dict[str, dict[str, Any]]:
    lines = Path(__file__).with_name(file).read_text(encoding="ascii").splitlines()
    return {case["name"]: {"verdict": "accepted", **case} for case in map(json.loads, lines)}


HONEST = _cases("honest.jsonl")
"""Right programs in the ways that models write them."""
CASES = HONEST | _cases("verdicts.jsonl")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def _marks(at: int, name: str) -> list[pytest.MarkDecorator]:
    fails = PYTHON in CASES[name].get("fails_on", ())
    core = at % 4 == 0 or name in HONEST
    return [pytest.mark.core] * core + [pytest.mark.skip(f"Python {PYTHON} itself cannot run it")] * fails


NAMES = [pytest.param(name, marks=_marks(at, name)) for at, name in enumerate(CASES)]


async def _verdict(case: dict[str, Any]) -> tuple[str, str]:
    try:
        task = task_of(Columns(**case["row"]))
        allowance = Allowance(seconds=5.0, stop=True)
        _, result = await tried_again(lambda: judge(pool_of(), case["completion"], task, allowance=allowance))
    except UnusableTests as fault:
        return "undecided", str(fault)
    return ("accepted" if result.outcome == "accepted" else "rejected"), result.line()


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> Iterator[dict[str, tuple[str, str]]]:
    """How every program did of which a test was selected, judged side by side."""
    items = [item for item in request.session.items if item.path == request.path]
    names = [str(item.callspec.params["name"]) for item in items if isinstance(item, pytest.Function)]

    async def every() -> list[tuple[str, str]]:
        return await asyncio.gather(*(_verdict(CASES[name]) for name in names))

    yield dict(zip(names, asyncio.run(every()), strict=True))
    close_pools()


@pytest.mark.parametrize("name", NAMES)
def test_a_program_gets_its_verdict(verdicts: dict[str, tuple[str, str]], name: str) -> None:
    verdict, line = verdicts[name]
    assert verdict == CASES[name]["verdict"], line
