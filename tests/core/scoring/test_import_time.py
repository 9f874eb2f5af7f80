"""A reward that imports inside its first call has the time for it wherever it runs."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE, Clock

from grpo import Completion, reward
from grpo.core.scoring.scorer import Scorer
from grpo.core.scoring.threads import ImportTime
from grpo.plugins._spec.binding import BoundReward

pytestmark = pytest.mark.slow

LOADING, SEEN = threading.Event(), threading.Event()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that takes 1.2 s to load, and until somebody has seen it load where somebody looks."""
    waits = (
        f"import time\ntime.sleep(1.2)\nfrom {__name__} import LOADING, SEEN\nLOADING.set()\nSEEN.wait({PATIENCE})\n"
    )
    (tmp_path / "takes_long_here.py").write_text(waits)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "takes_long_here", raising=False)
    LOADING.clear()
    SEEN.set()


@pytest.fixture
def clock(module: None, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all limits, on which a minute and more passes while that module is seen to load."""
    names = (f"grpo.core.scoring.{name}" for name in ("loop", "threads"))
    clock, look = Clock(monkeypatch, *names, "asyncio.base_events"), ImportTime.look
    SEEN.clear()

    def looked(self: ImportTime, thread: int | None) -> float:
        if LOADING.is_set() and not SEEN.is_set():
            clock.forward()
        seconds = look(self, thread)
        if LOADING.is_set():
            SEEN.set()
        return seconds

    monkeypatch.setattr(ImportTime, "look", looked)
    return clock


def lazy(clock: Clock | None = None) -> Callable[..., Any]:
    def lazy(completion: str) -> float:
        import takes_long_here  # type: ignore[import-not-found]

        if clock is not None and completion == "hang":
            clock.forward()
            threading.Event().wait(PATIENCE)
        return float(bool(takes_long_here))

    return lazy


def lazy_async(clock: Clock | None = None) -> Callable[..., Any]:
    async def lazy(completion: str) -> float:
        import takes_long_here

        await asyncio.sleep(0.01)
        if clock is not None and completion == "hang":
            asyncio.get_running_loop().call_soon(clock.forward)
            await asyncio.sleep(2 * PATIENCE)
        return float(bool(takes_long_here))

    return lazy


def scorer_of(function: Callable[..., Any], **metadata: Any) -> Scorer:
    spec = reward(version=1, name="mine", **metadata)(function)
    return Scorer([BoundReward(spec, "their-dist", timeout=PATIENCE)], workers=1)


def check_first_import(scorer: Scorer) -> None:
    with scorer:
        for text in "ab":
            [outcome] = scorer.score([Completion(text)])["mine"]
            assert outcome.score == 1.0, outcome


@pytest.mark.parametrize(("function", "metadata"), [(lazy, {"isolation": "thread"}), (lazy_async, {})])
def test_the_first_import_has_its_time(function: Any, metadata: dict[str, Any], clock: Clock) -> None:
    check_first_import(scorer_of(function(), **metadata))


@pytest.mark.parametrize(("function", "metadata"), [(lazy, {"isolation": "thread"}), (lazy_async, {})])
def test_a_call_that_imported_has_no_more_than_its_limit_for_the_rest(
    function: Any, metadata: dict[str, Any], clock: Clock
) -> None:
    with scorer_of(function(clock), **metadata) as scorer:
        [last] = scorer.score([Completion("hang")])["mine"]
        assert "longer than its time limit of 60 s" in str(last.reason)
        assert scorer.score([Completion("a")])["mine"][0].score == 1.0
