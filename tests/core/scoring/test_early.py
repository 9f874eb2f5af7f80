"""Scoring that begins while completions are still sampled: the same outcomes in any order, and a real overlap."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE, Clock, wait_for
from small_run import small_run

from grpo import Completion, Component, reward, rubric
from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.types import OnDone, Sampled, SamplingParams
from grpo.core.scoring.scorer import Outcome, Scorer
from grpo.plugins._spec.binding import BoundReward

SEEN: list[int] = []


@reward(version=1, range=(0.0, 20.0))
async def awaited(completion: str) -> float | None:
    return None if completion == "no" else float(len(completion))


@reward(version=1, range=(0.0, 10.0), isolation="thread")
def threaded(completion: str) -> float:
    if completion == "broken":
        raise RuntimeError("cannot read this one")
    return float(len(completion)) / 2


@reward(version=1, range=(0.0, 1.0), isolation="process")
def processed(completion: str, answer: int) -> float:
    return float(len(completion) == answer)


@reward(version=1, range=(0.0, 1.0), isolation="inline")
def inline(completion: str) -> float:
    return float("e" in completion)


@reward(version=1, range=(0.0, 1.0), batch=True, isolation="thread")
def together(completions: list[str]) -> list[float]:
    SEEN.append(len(completions))
    longest = max(len(text) for text in completions)
    return [len(text) / longest for text in completions]


@reward(version=1, range=(0.0, 1.0), isolation="thread")
def long_enough(completion: str) -> float:
    return float(len(completion) > 2)


GATED = rubric(name="gated", version=1, components=[Component(long_enough, 0.5, gate=True), Component(processed)])
PLUGINS = [BoundReward(spec, "their-dist") for spec in (awaited, threaded, processed, inline, together, GATED)]
TEXTS = ("one", "four", "three", "no", "seventeen", "two", "broken", "x")
COMPLETIONS = [
    *(Completion(text, row={"answer": 3} if text != "two" else {}) for text in TEXTS),
    Completion("", row={"answer": 0}, finish_reason="error", info={"failure": "its environment fell over"}),
]


def plain(outcomes: dict[str, list[Outcome]]) -> dict[str, list[Outcome]]:
    return {name: [outcome._replace(seconds=0.0) for outcome in found] for name, found in outcomes.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        [[0, 1, 2, 3, 4, 5, 6, 7, 8]],
        pytest.param([[7, 8], [3], [0, 6, 1], [5, 2, 4]], marks=pytest.mark.core),
        [[8], [6], [4]],
        [],
    ],
    ids=["at once", "in four parts", "only some", "none"],
)
def test_the_outcomes_are_those_of_the_whole_batch_in_whatever_order_completions_end(parts: list[list[int]]) -> None:
    SEEN.clear()
    with Scorer(PLUGINS, workers=2, retries=0) as scorer:
        early = scorer.early()
        for part in parts:
            early.begin(part, [COMPLETIONS[row] for row in part])
        found = scorer.score(COMPLETIONS, early=early)
        assert plain(found) == plain(scorer.score(COMPLETIONS))
        assert set(scorer.first_failure) == {"threaded", "processed", "gated.processed"}
    assert SEEN == [8, 8], "a batch reward sees the whole batch, once"
    assert [outcome.kind for outcome in found["threaded"]] == ["score"] * 6 + ["failure", "score", "failure"]


@pytest.mark.slow
def test_a_call_that_was_begun_is_not_made_again_and_its_time_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, "grpo.core.scoring.threads")
    calls: list[str] = []
    held = threading.Event()

    @reward(version=1, name="slow", isolation="thread", timeout=PATIENCE)
    def slow(completion: str) -> float:
        calls.append(completion)
        if completion == "hang":
            held.wait(PATIENCE)
        return 1.0

    texts = ["a", "hang", "b"]
    with Scorer([BoundReward(slow, "their-dist", timeout=PATIENCE)], workers=2) as scorer:
        early = scorer.early()
        early.begin([1], [Completion("hang")])
        early.begin([0], [Completion("a")])
        assert wait_for(lambda: len(calls) == 2 and early.waiting() == 1)
        clock.forward()
        found = scorer.score([Completion(text) for text in texts], early=early)["slow"]
        held.set()
    assert [outcome.kind for outcome in found] == ["score", "failure", "score"]
    assert "time limit" in (found[1].reason or "")
    assert sorted(calls) == sorted(texts)


def test_a_rollout_that_its_environment_failed_is_not_scored_early() -> None:
    calls: list[str] = []

    @reward(version=1, name="mine", isolation="thread")
    def mine(completion: str) -> float:
        calls.append(completion)
        return 1.0

    failed = Completion("failed", finish_reason="error", info={"failure": "its environment fell over"})
    with Scorer([BoundReward(mine, "their-dist")], workers=1) as scorer:
        early = scorer.early()
        early.begin([0, 1], [Completion("ended"), failed])
        found = scorer.score([Completion("ended"), failed], early=early)["mine"]
    assert [outcome.kind for outcome in found] == ["score", "failure"]
    assert calls == ["ended"]


def test_a_batch_that_is_given_up_is_called_no_further_and_fails_nothing() -> None:
    begun, go = threading.Event(), threading.Event()
    calls: list[str] = []

    @reward(version=1, name="slow", isolation="thread")
    def slow(completion: str) -> float:
        calls.append(completion)
        begun.set()
        go.wait(PATIENCE)
        return 1.0

    with Scorer([BoundReward(slow, "their-dist")], workers=1) as scorer:
        early = scorer.early()
        early.begin(range(20), [Completion("old")] * 20)
        assert begun.wait(PATIENCE)
        assert early.waiting() == 20
        early.drop()
        assert early.waiting() == 0
        go.set()
        fresh = scorer.early()
        fresh.begin([0], [Completion("new")])
        assert scorer.score([Completion("new")], early=fresh)["slow"][0].score == 1.0
        assert scorer.first_failure == {}
    assert calls.count("old") <= 4, "calls that waited were made all the same"
    assert calls.count("new") == 1


SLOW = '''
import asyncio
from pathlib import Path
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="process")
def worked(completion: str) -> float:
    """Leaves a mark where the test can see it."""
    Path({folder!r}, "worked").touch()
    return sum(letter in "aeiou" for letter in completion) / max(len(completion), 1)

@reward(version=1, range=(0.0, 1.0))
async def awaited(completion: str) -> float:
    Path({folder!r}, "awaited").touch()
    await asyncio.sleep(0.01)
    return 1.0
'''


class Waiting(HfRollouts):
    """Samples on, after the first completions have ended, only when both rewards have begun."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.marks = [folder / "worked", folder / "awaited"]
        self.ended: list[int] = []
        self.in_time: list[bool] = []

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        assert on_done is not None

        def ended(numbers: Sequence[int], done: Sequence[Sampled]) -> None:
            on_done(numbers, done)
            self.ended += numbers
            if len(self.ended) < len(prompts):
                self.in_time.append(wait_for(lambda: all(mark.exists() for mark in self.marks)))

        return super().generate(prompts, params, ended)


@pytest.mark.slow
def test_in_a_run_rewards_begin_before_the_last_completion_has_ended(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.core.record.run_dir import RunDir, read_rollouts
    from grpo.core.rollout import open as opening

    file = tmp_path / "rewards.py"
    file.write_text(SLOW.format(folder=str(tmp_path)))
    rollouts: Any = Waiting(tmp_path)
    monkeypatch.setattr(opening, "open_rollouts", lambda plan, model, *_: rollouts)
    small_run(
        tmp_path / "run",
        model=str(tiny_model),
        rewards=[f"{file}:worked", f"{file}:awaited"],
        train={"steps": 1, "prompts_per_step": 4, "group_size": 8, "lr": 1e-3},
        rollout={"max_completion_length": 64, "batch_size": 8},
    )
    assert sorted(rollouts.ended) == list(range(32))
    assert rollouts.in_time, "all completions ended at once"
    assert all(rollouts.in_time)
    rows = read_rollouts(RunDir(tmp_path / "run"), 1)
    assert all(row["score.awaited"] == 1.0 for row in rows)
    vowels = [sum(c in "aeiou" for c in row["completion"]) / max(len(row["completion"]), 1) for row in rows]
    assert [row["score.worked"] for row in rows] == pytest.approx(vowels)
