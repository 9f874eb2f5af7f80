"""What a run will take: from an earlier run that is like it, and from no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from same_metrics import metrics_of

from grpo.core.config.defaults import AGENT_CALLS
from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.timing.expected import expected, judges_of
from grpo.core.timing.forecast import forecast
from grpo.plugins.host import Host

TREE: dict[str, Any] = {"env": "gsm8k", "rewards": ["proximity"], "train": {"steps": 100}}
ASKING = """
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def opinion(completion: str, *, input_price: float = 0.0) -> float:
    return 0.0
"""


def config(**more: Any) -> RunConfig:
    return parse_config(TREE | more)


def recorded(run: Path, of: RunConfig, *, seconds: float = 2.0, steps: int = 30, **metrics: float) -> Path:
    """Writes the directory of an earlier run, as one is."""
    run.mkdir(parents=True)
    tree = of.model_dump(mode="json")
    tree["train"] |= {"steps": steps, "micro_batch_size": 8, "checkpointing": "none"}
    tree["rollout"]["max_completion_length"] = of.rollout.max_completion_length or 96
    (run / "config.json").write_text(json.dumps(tree))
    (run / "versions.json").write_text("{}")
    (run / "state.json").write_text(json.dumps({"status": "done", "step": steps}))
    rows = [
        {"step": step, "time/step": seconds, "completions/mean_length": 40.0, **metrics} for step in range(1, steps + 1)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def test_without_an_earlier_run_it_says_how_much_and_not_how_long(tmp_path: Path) -> None:
    found = expected(config(), (), tmp_path / "nowhere")
    assert (found.steps, found.completions, found.most_tokens) == (100, 6400, 6400 * 96)
    assert found.seconds is None
    assert found.lines() == [
        "100 steps: 6,400 completions, at most 614 k tokens a turn",
        "time is not known: no earlier run here of 5 steps or more has this model, environment and batch",
    ]


def test_an_earlier_run_that_is_like_it_says_how_long(tmp_path: Path) -> None:
    run = recorded(tmp_path / "before", config())
    found = expected(config(seed=7, loss={"type": "dr_grpo"}), (), tmp_path, gpus=1)
    assert found.like == run
    assert found.seconds is not None
    assert found.seconds.low <= 200 <= found.seconds.high
    assert found.tokens == 6400 * 40
    assert found.lines()[-1] == f"3 to 4 min (0.044 to 0.067 GPU-hours), as {run} took for each step"


def test_held_out_accuracy_counts_as_often_as_this_run_measures_it(tmp_path: Path) -> None:
    run = recorded(tmp_path / "before", config(evaluation={"every": 0}))
    first = json.dumps({"step": 0, "held_out/accuracy": 0.5, "time/held_out": 30.0})
    rows = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(f"{first}\n{rows}")
    for evaluation, times in (({"every": 40}, 4), ({"every": 0}, 2), ({"size": 0}, 0)):
        found = expected(config(evaluation=evaluation), (), tmp_path)
        assert found.seconds is not None
        assert found.seconds.low == pytest.approx(0.8 * (200 + times * 30))


@pytest.mark.parametrize(
    "other",
    [
        {"env": "countdown", "rewards": ["countdown"]},
        {"model": "some/model"},
        {"rewards": ["math"]},
        {"train": {"steps": 100, "group_size": 4}},
        {"lora": {"enabled": True}},
        {"rollout": {"max_completion_length": 32}},
        {"rollout": {"backend": "vllm"}},
    ],
)
def test_a_run_that_is_another_one_says_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    recorded(tmp_path / "before", config(**other))
    assert expected(config(rollout={"max_completion_length": 96}), (), tmp_path).like is None


def test_a_run_of_a_model_says_nothing_about_the_embedded_one(tmp_path: Path) -> None:
    recorded(tmp_path / "before", config(model="some/model"))
    assert expected(config(), (), tmp_path).like is None


def test_one_that_ended_at_once_or_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    good = recorded(tmp_path / "good", config())
    recorded(tmp_path / "short", config(), steps=3)
    broken = recorded(tmp_path / "unreadable", config())
    (broken / "config.json").write_text("{")
    assert expected(config(), (), tmp_path).like == good


def test_a_judge_is_asked_about_each_completion_and_costs_what_it_did(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ASKING)
    judged = config(rewards=[f"{tmp_path}/mine.py:opinion:input_price=1.0", "proximity"])
    assert judges_of(judged, Host.discover()) == ["opinion"]
    assert judges_of(config(), Host.discover()) == []
    unknown = expected(judged, ["opinion"], tmp_path)
    assert (unknown.calls, unknown.dollars) == (6400, None)
    metrics: dict[str, Any] = {
        "rewards/opinion/completion_tokens": 50.0,
        "rewards/opinion/cached": 0.25,
        "rewards/opinion/cost": 0.002,
    }
    recorded(tmp_path / "before", judged, **metrics)
    found = expected(judged, ["opinion"], tmp_path)
    assert found.calls == pytest.approx(4800)
    assert found.dollars == pytest.approx(12.8)
    assert found.lines()[1] == "4,800 calls of opinion, about $12.80"
    rows = metrics_of(tmp_path / "before")
    coming = forecast(rows, steps=40, completions=64, gpus=2)
    assert coming is not None
    assert (coming.calls, coming.dollars) == (pytest.approx(480), pytest.approx(1.28))
    assert "480 calls of the judge ($1.28)" in coming.text()
    assert "GPU-hours" in coming.text()


def test_what_it_says_to_programs_is_json(tmp_path: Path) -> None:
    recorded(tmp_path / "before", config())
    told = json.loads(json.dumps(expected(config(), (), tmp_path).summary()))
    assert told["seconds"] == [pytest.approx(160), pytest.approx(240)]
    assert told["like"].endswith("before")


def test_episodes_of_an_agent_are_counted_in_calls(tmp_path: Path) -> None:
    found = expected(config(agent="mini-swe-agent", rollout={"max_turns": 5}), (), tmp_path / "nowhere")
    assert (found.agent_calls, found.most_tokens) == (6400 * 5, 6400 * 5 * 96)
    assert (
        found.lines()[0] == "100 steps: 6,400 episodes of an agent, at most 32,000 calls, at most 3.07 M sampled tokens"
    )
    by_default = expected(config(agent="mini-swe-agent"), (), tmp_path / "nowhere")
    assert by_default.agent_calls == 6400 * AGENT_CALLS
    assert expected(config(), (), tmp_path / "nowhere").agent_calls == 0
