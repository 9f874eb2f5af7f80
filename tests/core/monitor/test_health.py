"""The health watch: each warning comes once, on the trouble that it is for, and never on a healthy run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import pytest

from grpo.core.monitor.health import HealthWatch, loops
from grpo.core.record.agent_calls import KEY, AgentRecord, as_info
from grpo.plugins.types import Completion

GOOD = "First Ann has 3 pens. She buys 4 more, so 3 + 4 = 7. <answer>7</answer>"
LOOP = "the answer is " * 30


def batch(text: str = GOOD, reason: Literal["stop", "length"] = "stop", count: int = 8) -> list[Completion]:
    return [Completion(text=text, finish_reason=reason) for _ in range(count)]


def by_agent(reason: Literal["stop", "length"] = "stop", *, timed_out: bool = False) -> list[Completion]:
    record = AgentRecord(1, {}, 9, 0, 0.1, 0.1, 0, timed_out, (), "", "", ())
    return [Completion(text=GOOD, finish_reason=reason, info={KEY: as_info(record)}) for _ in range(8)]


def row(step: int, **metrics: float | None) -> dict[str, float | int | None]:
    return {"step": step, **{key.replace("__", "/"): value for key, value in metrics.items()}}


@pytest.mark.parametrize(
    ("completions", "totals", "says"),
    [
        (batch(" \n"), [0.5] * 8, "are empty"),
        (batch(LOOP), [0.5] * 8, "repeat themselves"),
        (batch(reason="length"), [0.5] * 8, "hit the length limit without ending"),
        ([Completion(GOOD, finish_reason="length", turns=4)] * 8, [0.5] * 8, "were ended by a budget"),
        (by_agent(reason="length"), [0.5] * 8, "used up their calls or tokens"),
        (batch(), [0.0] * 8, "every reward was exactly 0"),
        (batch(), [None] * 8, "because every reward abstained or failed"),
    ],
)
def test_a_sick_batch_is_warned_about_once(
    completions: list[Completion], totals: Sequence[float | None], says: str
) -> None:
    watch = HealthWatch("float32")
    warnings = [warning for step in range(1, 31) for warning in watch.batch(step, completions, totals)]
    assert len(warnings) == 1
    assert says in warnings[0]


def test_a_rollout_that_ends_with_a_call_is_not_an_empty_answer() -> None:
    watch = HealthWatch("float32")
    assert watch.batch(1, [Completion("", turns=2, info={"tool_calls": 2})] * 8, [0.5] * 8) == []


def test_rollouts_that_failed_are_neither_empty_answers_nor_unscored() -> None:
    failed = [Completion("", finish_reason="error")]
    assert HealthWatch("float32").batch(1, failed * 8, [None] * 8) == []
    assert HealthWatch("float32").batch(1, [*failed * 7, *batch()[:1]], [*[None] * 7, 0.5]) == []
    [warning] = HealthWatch("float32").batch(1, [*failed * 7, *batch()[:1]], [None] * 8)
    assert "because every reward abstained or failed" in warning


def test_programs_that_run_out_of_time_or_crash_are_no_matter_of_length() -> None:
    watch = HealthWatch("float32")
    assert watch.batch(1, by_agent("length", timed_out=True), [0.5] * 8) == []
    assert watch.metrics(row(1, agent__timed_out=0.5, agent__exits=0.5)) == []
    [late] = watch.metrics(row(2, agent__timed_out=1.0, agent__exits=0.0))
    assert "ran out of time" in late
    assert "agent_seconds" in late
    [crashed] = watch.metrics(row(3, agent__timed_out=1.0, agent__exits=1.0))
    assert "exit status other than 0" in crashed


def test_tokens_that_do_not_train_are_named_once_they_are_most() -> None:
    watch = HealthWatch("float32")
    assert watch.metrics(row(1, agent__tokens_trained=60.0, agent__tokens_untrained=40.0)) == []
    [warning] = watch.metrics(row(2, agent__tokens_trained=40.0, agent__tokens_untrained=60.0))
    assert warning.startswith("60% of the tokens that the policy wrote in step 2 do not train.")
    assert watch.metrics(row(3, agent__tokens_trained=0.0, agent__tokens_untrained=60.0)) == []


def test_late_batches_are_not_searched_for_broken_output() -> None:
    watch = HealthWatch("float32")
    assert watch.batch(11, batch(""), [0.5] * 8) == []


def test_no_score_is_not_a_zero_and_one_good_reward_ends_the_streak() -> None:
    watch = HealthWatch("float32")
    for step in range(1, 31):
        assert watch.batch(step, batch(), [None, *[0.0] * 7]) == []
    for step in range(1, 31):
        assert watch.batch(step, batch(), [0.0] * 7 + [1.0 if step % 4 == 0 else 0.0]) == []


def test_groups_without_variance_are_warned_about_once_and_only_in_a_row() -> None:
    watch = HealthWatch("float32")
    assert not [w for step in range(1, 20) for w in watch.metrics(row(step, frac_reward_zero_std=float(step % 4 > 0)))]
    warnings = [w for step in range(20, 40) for w in watch.metrics(row(step, frac_reward_zero_std=1.0))]
    assert len(warnings) == 1
    assert "no group had two different rewards" in warnings[0]


def test_a_component_that_always_abstains_is_named_once_and_only_in_a_row() -> None:
    def said(step: int, share: float | None) -> list[str]:
        return watch.metrics({"step": step, "rewards/mail.judge/abstain": share, "rewards/mail/abstain": 0.0})

    watch = HealthWatch("float32")
    assert not [w for step in range(1, 20) for w in said(step, float(step % 4 > 0))]
    [warning] = [w for step in range(20, 40) for w in said(step, None if step % 2 else 1.0)]
    assert "reward 'mail.judge' abstained on every completion for 5 steps" in warning


@pytest.mark.parametrize(("dtype", "fine", "wrong"), [("float32", 1e-4, 0.05), ("bfloat16", 0.3, 2.0)])
def test_sampling_and_training_that_disagree_are_warned_about_by_dtype(dtype: str, fine: float, wrong: float) -> None:
    watch = HealthWatch(dtype)
    key = "sampling/sampling_logp_difference/max"
    assert watch.metrics({"step": 1, key: fine}) == []
    (warning,) = watch.metrics({"step": 2, key: wrong})
    assert "sampling and training disagree" in warning
    assert watch.metrics({"step": 3, key: wrong}) == []


@pytest.mark.parametrize("accuracy_end", [0.02, 0.1, 0.4])
def test_a_reward_that_rises_while_answers_do_not_is_warned_about_once(accuracy_end: float) -> None:
    watch = HealthWatch("float32")
    noise = random.Random(0)
    warnings = []
    for step in range(1, 61):
        share = step / 60
        reward = 1.0 + share + noise.gauss(0, 0.05)
        accuracy = 0.4 + (accuracy_end - 0.4) * share
        warnings += watch.metrics(row(step, reward=reward, accuracy=accuracy))
    assert len(warnings) == 1
    assert "pays for something else than correct answers" in warnings[0]


@pytest.mark.parametrize(("start", "end"), [(0.4, 0.95), (0.97, 0.96), (0.05, 0.3)])
def test_a_healthy_run_gives_no_warning(start: float, end: float) -> None:
    noise = random.Random(1)
    watch = HealthWatch("float32")
    for step in range(1, 101):
        accuracy = start + (end - start) * step / 100 + noise.gauss(0, 0.02)
        totals = [noise.random() for _ in range(8)]
        assert watch.batch(step, batch(), totals) == []
        metrics = row(step, reward=1 + accuracy, accuracy=accuracy, frac_reward_zero_std=0.4, loss=0.01)
        assert watch.metrics(metrics | {"sampling/sampling_logp_difference/max": 1e-5}) == []


def test_a_reward_that_only_wobbles_has_not_risen() -> None:
    silent = 0
    for seed in range(20):
        noise = random.Random(seed)
        watch = HealthWatch("float32")
        rows = [row(step, reward=noise.gauss(1, 0.1), accuracy=0.4) for step in range(1, 61)]
        silent += not [warning for metrics in rows for warning in watch.metrics(metrics)]
    assert silent >= 19


def test_a_task_out_of_reach_is_warned_about_once_after_the_first_steps() -> None:
    watch = HealthWatch("float32")
    steps = [watch.metrics(row(step, reward=0.2, accuracy=0.0 if step % 5 else 0.05)) for step in range(1, 31)]
    assert [step for step, warnings in enumerate(steps, start=1) if warnings] == [10]
    assert "1.0% of the answers of the first 10 steps were correct" in steps[9][0]
    able = HealthWatch("float32")
    assert not [w for step in range(1, 31) for w in able.metrics(row(step, reward=0.2, accuracy=0.03))]


def test_a_short_text_or_a_list_does_not_loop_but_a_stuck_one_does() -> None:
    assert not loops("yes " * 20)
    assert not loops(" ".join(f"step {number} adds {number * 3} apples to basket {number % 7}" for number in range(30)))
    assert loops(LOOP)
