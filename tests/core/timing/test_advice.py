"""Where the time of a run went, and what it is advised to change: figures in, shares and calculated gains out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo.core.timing.advice import advise
from grpo.core.timing.timeline import HELD_OUT, SAMPLING, UPDATE, timeline

STEP = {"time/step": 2.0, "time/generate": 1.0, "time/score": 0.25, "time/record": 0.25}


def rows_of(count: int, **more: float) -> list[dict[str, Any]]:
    return [{"step": step, **STEP, **more} for step in range(1, count + 1)]


def config_of(**more: Any) -> Any:
    """The settings that advice looks at."""
    plain: dict[str, Any] = {
        "train": SimpleNamespace(steps=1000),
        "evaluation": SimpleNamespace(every=10),
        "output": SimpleNamespace(save_every=10),
        "canaries": SimpleNamespace(every=1),
        "rollout": SimpleNamespace(backend="hf", ahead=0),
    }
    return SimpleNamespace(**plain | more)


def server_of(**more: Any) -> Any:
    """The settings of sampling by a server."""
    return SimpleNamespace(**{"backend": "vllm-server", "ahead": 0, "server_url": "http://127.0.0.1:8271"} | more)


def reward_of(name: str, **spec: Any) -> Any:
    plain = {"isolation": "inline", "batch": False, "function": len}
    return SimpleNamespace(name=name, spec=SimpleNamespace(**plain | spec))


def test_parts_add_up_to_the_steps_and_what_lies_between_them() -> None:
    rows = rows_of(4)
    rows[1] |= {"time/held_out": 3.0}
    rows[2] |= {"time/checkpoint": 1.0}
    times = timeline([{"step": 0, "held_out/accuracy": 0.1}, *rows])
    assert times.steps == 2
    assert times.total == 2 * 2.0 + 3.0 + 1.0
    assert times.parts[UPDATE] == pytest.approx(2 * 0.5)
    assert times.share(HELD_OUT) == pytest.approx(3 / 8)
    assert times.text() == "38% held-out accuracy, 25% sampling, 12% update, 12% checkpoints, 6% scoring, 6% records"


def test_neither_the_first_nor_the_last_step_counts_where_there_are_enough() -> None:
    rows = rows_of(5)
    rows[0]["time/generate"] = rows[-1]["time/held_out"] = 100.0
    assert timeline(rows).parts[SAMPLING] == 3.0
    assert timeline(rows).parts[HELD_OUT] == 0.0
    assert timeline(rows_of(3)).steps == 3


def test_the_whole_of_a_run_counts_all_that_was_measured() -> None:
    rows = rows_of(6)
    rows[-1]["time/held_out"] = 3.0
    whole = timeline([{"step": 0, "held_out/accuracy": 0.1, "time/held_out": 5.0}, *rows], whole=True)
    assert whole.steps == 6
    assert whole.total == 6 * 2.0 + 3.0 + 5.0
    assert whole.text().startswith("40% held-out accuracy, 30% sampling")


def test_steps_without_a_batch_of_their_own_are_update_alone() -> None:
    rows = [{"step": 1, **STEP}, {"step": 2, "time/step": 0.5, "time/generate": None}]
    assert timeline(rows).parts[UPDATE] == pytest.approx(0.5 + 0.5)


def test_what_became_of_tokens_is_said_where_it_is_worth_a_word() -> None:
    rows = rows_of(4, **{"time/tokens_per_second": 1200.0, "sampling/taught_nothing": 0.5, "update/padding": 0.01})
    rows[1] |= {"time/tokens_per_second": 1300.0, "update/padding": None}
    assert timeline(rows).tokens() == "1,250 sampled a second, 50% without signal"
    beside = timeline(rows_of(4, **{"update/padding": 0.25}))  # sampled while the policy trains: nobody knows how fast
    assert beside.tokens() == "25% of the update is padding"


def test_no_time_at_all_is_no_advice_and_no_text() -> None:
    times = timeline([{"step": 0, "held_out/accuracy": 0.1}])
    assert times.text() == times.tokens() == ""
    assert advise(times, config_of(), [reward_of("a")], 4, 4.0) == []


def test_what_is_done_too_often_is_done_so_rarely_that_it_costs_little() -> None:
    """2 s a step, and 20 s of held-out answers every 10 steps: half of the time; every 200 they are 5% of it."""
    rows = rows_of(42)
    for row in rows[10:-1:10]:
        row["time/held_out"] = 20.0
    (advice,) = advise(timeline(rows), config_of(), [], 4, 4.0)
    assert advice.change == "--eval-every 200"
    assert advice.factor == pytest.approx(160 / 84)
    assert advice.text() == (
        "50% of the time goes to held-out accuracy: --eval-every 200 would make a step 1.9 times as fast (calculated)"
    )


def test_checkpoints_stay_so_frequent_that_a_crash_costs_few_steps() -> None:
    rows = rows_of(20, **{"time/checkpoint": 50.0})
    (advice,) = advise(timeline(rows), config_of(output=SimpleNamespace(save_every=1)), [], 4, 4.0)
    assert advice.change == "--save-every 50"
    assert advice.factor == pytest.approx(52 / 3)


def test_a_reward_in_the_trainers_thread_is_worth_a_process() -> None:
    rows = rows_of(10, **{"time/score": 6.0, "time/step": 8.0, "time/rewards/slow": 6.0, "time/rewards/fast": 0.01})
    rewards = [reward_of("slow"), reward_of("fast")]
    (advice,) = advise(timeline(rows), config_of(), rewards, 4, 4.0)
    assert advice.what == "75% of the time goes to reward 'slow' in the trainer's own thread"
    assert advice.factor == pytest.approx(8 / 3.5)


async def waits() -> None:
    """A reward that waits among others."""


@pytest.mark.parametrize(
    "spec",
    [{"isolation": "process"}, {"batch": True}, {"function": waits}],
    ids=["has-processes", "sees-the-batch", "waits"],
)
def test_a_reward_that_more_workers_would_not_help_is_left_alone(spec: dict[str, Any]) -> None:
    rows = rows_of(10, **{"time/score": 6.0, "time/step": 8.0, "time/rewards/slow": 6.0})
    assert advise(timeline(rows), config_of(), [reward_of("slow", **spec)], 4, 4.0) == []


def test_calls_that_went_on_beside_the_sampling_cost_nothing() -> None:
    rows = rows_of(10, **{"time/score": 0.01, "time/rewards/slow": 60.0})
    found = advise(timeline(rows), config_of(), [reward_of("slow")], 4, 4.0)
    assert [one.factor for one in found] == []


@pytest.mark.parametrize(("ahead", "gains"), [(0, [2.0 / 1.5]), (1, [])])
def test_a_server_may_sample_while_the_policy_trains(ahead: int, gains: list[float]) -> None:
    """1 s of sampling, 0.2 s of it handing weights over, beside 0.5 s of update."""
    rows = rows_of(10, **{"sync/seconds": 0.2})
    config = config_of(rollout=server_of(ahead=ahead))
    assert [one.factor for one in advise(timeline(rows), config, [], 4, 4.0)] == pytest.approx(gains)


@pytest.mark.parametrize(
    ("url", "idle", "advised"),
    [
        ("http://127.0.0.1:8271", 0.9, True),
        ("http://127.0.0.1:8271", 0.2, False),
        ("http://far:8271,http://localhost:1", -3.0, False),
        ("http://far:8271", -3.0, True),
    ],
)
def test_a_server_of_a_busy_machine_would_only_take_the_processors_of_the_update(
    url: str, idle: float, advised: bool
) -> None:
    config = config_of(rollout=server_of(server_url=url))
    assert bool(advise(timeline(rows_of(10)), config, [], 4, idle)) == advised


def test_the_largest_gain_comes_first_and_small_ones_not_at_all() -> None:
    rows = rows_of(40, **{"time/checkpoint": 5.0, "time/canaries": 0.1})
    for row in rows[5:-1:10]:
        row["time/held_out"] = 60.0
    found = advise(timeline(rows), config_of(), [], 4, 4.0)
    assert [one.what.split(" goes to ")[1] for one in found] == [HELD_OUT, "checkpoints"]
    assert all(one.factor >= 1.1 for one in found)
