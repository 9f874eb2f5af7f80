"""A reward that imports inside its first call has the time for it wherever it runs, and its user is told."""

from __future__ import annotations

import asyncio
import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo import Completion, reward
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._binding import BoundReward

pytestmark = pytest.mark.slow


def lazy(completion: str) -> float:
    import takes_long_here  # type: ignore[import-not-found]

    return float(bool(takes_long_here))


async def lazy_async(completion: str) -> float:
    import takes_long_here

    await asyncio.sleep(0.2)
    if completion == "hang":
        await asyncio.sleep(5)
    return float(bool(takes_long_here))


@pytest.fixture(autouse=True)
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "takes_long_here.py").write_text("import time\ntime.sleep(1.6)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "takes_long_here", raising=False)


@pytest.mark.parametrize(
    ("function", "metadata"), [(lazy, {"isolation": "inline"}), (lazy, {"isolation": "thread"}), (lazy_async, {})]
)
def test_the_first_import_has_its_time_and_is_told_of(function: Any, metadata: dict[str, Any]) -> None:
    before = builtins.__import__
    spec = reward(version=1, name="mine", **metadata)(function)
    with Scorer([BoundReward(spec, "their-dist", timeout=0.8)], workers=1) as scorer:
        outcomes = scorer.score([Completion("a"), Completion("b")])["mine"]
        assert [one.score for one in outcomes] == [1.0, 1.0], outcomes
        assert "s to import takes_long_here in its first call" in scorer.slow_imports["mine"]
    assert builtins.__import__ is before


def test_an_async_call_that_imported_has_no_more_than_its_limit_for_the_rest() -> None:
    spec = reward(version=1, name="mine")(lazy_async)
    with Scorer([BoundReward(spec, "their-dist", timeout=0.8)]) as scorer:
        first, last = scorer.score([Completion("a"), Completion("hang")])["mine"]
    assert first.score == 1.0
    assert "longer than its time limit of 0.8 s" in str(last.reason)
