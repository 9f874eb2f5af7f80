"""A reward that abstains on everything, or pays everything alike from the start, stops the run; nothing else does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from command import grpo

from grpo.core.env.scores import ELSEWHERE
from grpo.core.monitor.zero_signal import ZeroSignalWatch
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.advantages.compute import Advantages
from grpo.core.train.batch.batch import Batch
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.decorators import reward
from grpo.plugins.types import Completion

LIMIT = 3


@reward
def forgets(completion: str):  # type: ignore[no-untyped-def]
    del completion


FORGETS, OTHER = BoundReward(forgets, "mine.py"), BoundReward(forgets, "mine.py", alias="other")


def batch(step: int, scores: Mapping[str, Sequence[float | None] | None], *, alike: bool) -> Batch:
    """Two groups of two; None for all scores: the reward belongs to another environment."""
    outcomes = {
        name: [ELSEWHERE] * 4
        if own is None
        else [Outcome("abstain") if score is None else Outcome("score", score) for score in own]
        for name, own in scores.items()
    }
    first = next(own for own in scores.values() if own is not None)
    totals = torch.tensor([math.nan if score is None else score for score in first])
    none = torch.zeros(4)
    advantages = Advantages(totals, none, none == 0, torch.zeros(2), torch.tensor([alike, alike]))
    return Batch(step, (Completion(""),) * 4, outcomes, advantages, 2, 0.0, 0.0)


def first_stop(watch: ZeroSignalWatch, batches: Sequence[Batch]) -> tuple[int, str] | None:
    return next(((one.step, why) for one in batches if (why := watch.look(one)) is not None), None)


def test_a_reward_that_abstains_on_everything_stops_the_run_with_the_reason() -> None:
    watch = ZeroSignalWatch([FORGETS], LIMIT)
    stopped = first_stop(watch, [batch(step, {"forgets": [None] * 4}, alike=True) for step in range(1, 9)])
    assert stopped is not None
    assert stopped[0] == LIMIT
    assert stopped[1].startswith(
        "reward 'forgets' (mine.py) abstained on every completion of steps 1 to 3: it returned None"
    )
    assert stopped[1].endswith("--set failures.no_signal_steps=0.")


def test_so_does_one_beside_rewards_that_score_and_not_where_it_is_only_logged() -> None:
    scores: dict[str, Sequence[float | None] | None] = {"other": [0.0, 1.0, 0.0, 0.0], "forgets": [None] * 4}
    batches = [batch(step, scores, alike=False) for step in range(1, 9)]
    stopped = first_stop(ZeroSignalWatch([FORGETS, OTHER], LIMIT), batches)
    assert stopped is not None
    assert stopped[0] == LIMIT
    logged = BoundReward(forgets, "mine.py", weight=0.0)
    assert first_stop(ZeroSignalWatch([logged, OTHER], LIMIT), batches) is None


def test_rewards_that_never_differ_from_the_first_step_on_stop_the_run() -> None:
    batches = [batch(step, {"other": [1.0] * 4}, alike=True) for step in range(1, 9)]
    stopped = first_stop(ZeroSignalWatch([OTHER], LIMIT), batches)
    assert stopped is not None
    assert stopped[0] == LIMIT
    assert "no group had two different rewards in any step up to step 3: every completion was paid 1" in stopped[1]
    batches = [batch(step, {"other": [1.0, 1.0, 2.0, 2.0]}, alike=True) for step in range(1, 9)]
    stopped = first_stop(ZeroSignalWatch([OTHER], LIMIT), batches)
    assert stopped is not None
    assert "all completions of a prompt were paid the same" in stopped[1]


@pytest.mark.parametrize(
    "steps",
    [
        [([0.0, 1.0, 0.0, 0.0], False), *[([1.0] * 4, True)] * 8],  # solved
        [*[([None] * 4, True)] * 2, ([0.0, 1.0, 0.0, 0.0], False), *[([None] * 4, True)] * 2],
        [*[([0.0] * 4, True)] * 2, ([0.0, 1.0, 0.0, 0.0], False), *[([0.0] * 4, True)] * 8],
    ],
    ids=["a solved task", "abstentions in between", "rewards that differed once"],
)
def test_nothing_else_stops_it(steps: Sequence[tuple[Sequence[float | None], bool]]) -> None:
    batches = [batch(step, {"other": own}, alike=alike) for step, (own, alike) in enumerate(steps, start=1)]
    assert first_stop(ZeroSignalWatch([OTHER], LIMIT), batches) is None


def test_no_limit_stops_nothing() -> None:
    batches = [batch(step, {"forgets": [None] * 4}, alike=True) for step in range(1, 99)]
    assert first_stop(ZeroSignalWatch([FORGETS], 0), batches) is None


def test_a_step_without_a_reward_s_environment_does_not_count_for_it() -> None:
    watch = ZeroSignalWatch([FORGETS, OTHER], LIMIT)
    away: dict[str, Sequence[float | None] | None] = {"other": [0.0, 1.0, 0.0, 0.0], "forgets": None}
    assert first_stop(watch, [batch(step, away, alike=False) for step in range(1, 9)]) is None


def test_a_run_that_is_resumed_goes_on_with_the_count() -> None:
    rows = [{"step": 0, "held_out/accuracy": 0.1}]
    rows += [{"step": step, "frac_reward_zero_std": 1.0, "rewards/forgets/abstain": 1.0} for step in (1, 2)]
    watch = ZeroSignalWatch([FORGETS], LIMIT, rows)
    assert watch.look(batch(3, {"forgets": [None] * 4}, alike=True)) is not None
    scored = [{**row, "rewards/forgets/abstain": 0.5, "frac_reward_zero_std": 0.5} for row in rows[1:]]
    watch = ZeroSignalWatch([FORGETS], LIMIT, scored)
    assert watch.look(batch(3, {"forgets": [None] * 4}, alike=True)) is None


@pytest.mark.slow
def test_a_run_with_a_reward_without_return_ends_with_the_reason_and_again_when_it_is_resumed(
    tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("def forgets(completion, answer):\n    found = answer in completion\n")
    out = str(tmp_path / "run")
    small = "--steps 9 --max-completion-length 4 --prompts-per-step 1 --group-size 2 --save-every 1 --eval-size 2"
    words = f"run --env gsm8k:size=9,dataset=embedded --reward {tmp_path}/mine.py:forgets --model {tiny_model} {small}"
    done = grpo(*words.split(), "--out", out, "--set", "failures.no_signal_steps=3")
    assert done.returncode == 1, done.stderr
    assert "warning: reward 'forgets': it abstained on each of 26 completions" in done.stderr
    assert "abstained on every completion of steps 1 to 3" in done.stderr.splitlines()[-1]
    again = grpo("run", "--resume", out)
    assert again.returncode == 1
    assert "abstained on every completion of steps 1 to 3" in again.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_run_whose_rewards_are_all_0_ends_without_a_word_of_steps_that_a_resumed_run_would_repeat(
    tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("def nothing(completion):\n    return 0.0\n")
    small = "--steps 9 --max-completion-length 4 --prompts-per-step 1 --group-size 2 --eval-size 0"
    words = f"run --env gsm8k:size=9,dataset=embedded --reward {tmp_path}/mine.py:nothing --model {tiny_model} {small}"
    done = grpo(*words.split(), "--out", str(tmp_path / "run"), "--set", "failures.no_signal_steps=3")
    assert done.returncode == 1, done.stderr
    assert "every completion was paid 0, and nothing was learned" in done.stderr
    assert "will be done again" not in done.stderr
