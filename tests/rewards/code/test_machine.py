"""What the machine does to tests and solutions is no verdict on a solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from machine_trouble import MARK, busy, killing

from grpo.plugins.errors import TransientError
from grpo.plugins.pools import pool_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sandbox_pools")]
_SLOW = f"{MARK}import time\ndef double(x):\n    time.sleep(0.4)\n    return 2 * x\n"
_TESTS = ["assert double(2) == 4"]


@pytest.mark.parametrize("marked", [True, False], ids=["solution", "tests"])
def test_a_kill_from_outside_blames_nobody(judged: Callable[..., Any], marked: bool) -> None:
    with killing(1, marked=marked) as ended:
        try:
            result = judged(_SLOW, pool=pool_of(), tests=_TESTS)
        except TransientError:  # it was killed before it had read its job; nobody is blamed either
            return
    assert len(ended) == 1
    assert result.outcome == "accepted"
    with killing(2, marked=marked), pytest.raises(TransientError, match="outside"):
        judged(_SLOW, pool=pool_of(), tests=_TESTS)


def test_a_kill_from_outside_of_a_program_that_prints_blames_nobody(judged: Callable[..., Any]) -> None:
    row = {"inputs": [""], "outputs": ["4"]}
    with killing(2, marked=True), pytest.raises(TransientError, match="outside"):
        judged(f"{MARK}import time\ntime.sleep(0.4)\nprint(4)", pool=pool_of(), **row)


@pytest.mark.parametrize("kill", ["os.kill(os.getpid(), 9)", "os.kill(0, 9)", "signal.raise_signal(9)"])
@pytest.mark.parametrize("tests", ["assert double(2) == 4", "assert double(2) is double(2)"], ids=["calls", "objects"])
def test_a_solution_that_kills_itself_has_failed(judged: Callable[..., Any], kill: str, tests: str) -> None:
    for program in (f"def double(x):\n    {kill}", f"{kill}\ndef double(x): return 2 * x"):
        result = judged(f"import os, signal\n{program}", tests=tests)
        assert (result.passed, result.outcome) == (0, "policy")


def test_a_solution_beside_busy_processes_has_the_time_that_it_may_take(judged: Callable[..., Any]) -> None:
    work = "import time\ndef double(x):\n    while time.process_time() < 0.8: pass\n    return 2 * x\n"
    with busy(12):
        assert judged(work, tests=[*_TESTS, "assert double(3) == 7"], seconds=1.0).passed == 1
        assert judged(f"{work}print(double(2))", inputs=[""], outputs=["4"], seconds=1.0).outcome == "accepted"


def test_a_solution_that_sleeps_beside_busy_processes_is_late(judged: Callable[..., Any]) -> None:
    work = "import time\ndef double(x):\n    while time.process_time() < 0.1: pass\n    time.sleep(60)\n"
    with busy(6):
        assert judged(work, tests=_TESTS, seconds=0.5).outcome == "time_wall"
