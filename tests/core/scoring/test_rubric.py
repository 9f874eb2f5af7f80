"""Rubrics in the scorer: components keep their rooms, limits and failures; gates save calls; the run logs all of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from patience import PATIENCE, Clock
from small_run import small_run

from grpo import Completion, Component, RubricSpec, check_reward, reward, rubric
from grpo.core.cli.main import cli
from grpo.core.scoring.scorer import Outcome, Scorer
from grpo.core.train.advantages.estimators import group_mean
from grpo.core.train.batch.batch import advantages_of
from grpo.plugins._spec.binding import BoundAdvantage, BoundReward
from grpo.plugins.errors import UsageError

CALLS: list[str] = []


@reward(version=1, range=(0.0, 1.0), isolation="inline")
def tagged(completion: str) -> float | None:
    if completion == "crash":
        raise ValueError("no tags here")
    return None if "?" in completion else float("<a>" in completion)


@reward(version=1, range=(-1.0, 1.0), isolation="inline")
def right(completion: str, answer: str) -> float | None:
    CALLS.append(completion)
    return None if answer == "unknown" else 1.0 if answer in completion else -1.0


@reward(version=1, range=(0.0, 1.0), isolation="process", timeout=PATIENCE)
def hangs(completion: str) -> float:
    if completion.startswith("/"):
        Path(completion).touch()
        time.sleep(2 * PATIENCE)
    if "exit" in completion:
        os._exit(7)
    return 1.0


@reward(version=1, range=(0.0, 1.0))
async def waits(completion: str) -> float:
    await asyncio.sleep(0.01)
    return 1.0


@reward(version=1, range=(0.0, 4.0), batch=True, isolation="thread")
def counts(completions: list[Completion]) -> list[float]:
    return [float(len(completions))] * len(completions)


GATED = rubric(name="gated", version=1, components=[Component(tagged, 0.5, gate=True), Component(right)])


def scores(spec: RubricSpec, texts: Sequence[str], answer: str = "4", **options: Any) -> dict[str, list[Outcome]]:
    bound = BoundReward(spec, "their-dist", options, timeout=spec.timeout)
    with Scorer([bound], workers=1, retries=0) as scorer:
        return scorer.score([Completion(text, row={"answer": answer}) for text in texts])


def kinds(outcomes: Sequence[Outcome]) -> list[tuple[str, float | None]]:
    return [(outcome.kind, outcome.score) for outcome in outcomes]


def test_every_component_has_outcomes_of_its_own_after_the_rubrics() -> None:
    found = scores(GATED, ["<a>4", "<a>5"])
    assert list(found) == ["gated", "gated.tagged", "gated.right"]
    assert kinds(found["gated"]) == [("score", 1.5), ("score", -0.5)]
    assert kinds(found["gated.right"]) == [("score", 1.0), ("score", -1.0)]


def test_what_a_gate_stops_is_not_called_and_counts_its_lowest() -> None:
    CALLS.clear()
    found = scores(GATED, ["4", "<a>4", "5"])
    assert CALLS == ["<a>4"]
    assert kinds(found["gated"]) == [("score", -1.0), ("score", 1.5), ("score", -1.0)]
    assert kinds(found["gated.right"]) == [("abstain", None), ("score", 1.0), ("abstain", None)]
    assert found["gated.right"][0].reason == "not called: the gate 'gated.tagged' scored 0, below 1."


def test_a_gate_that_abstains_is_open_and_one_that_fails_fails_the_rubric() -> None:
    CALLS.clear()
    found = scores(GATED, ["4?", "crash"])
    assert CALLS == ["4?"]
    assert kinds(found["gated"]) == [("score", 1.5), ("failure", None)]
    assert found["gated"][1].reason == (
        "reward 'gated' of their-dist, row 1: a component failed: reward 'gated.tagged' (tagged) of their-dist, row 1: "
        "ValueError: no tags here"
    )
    assert found["gated.right"][1].reason == "not called: the gate 'gated.tagged' failed."


def test_a_missing_column_fails_only_where_the_component_is_called() -> None:
    bound = BoundReward(GATED, "their-dist", timeout=PATIENCE)
    with Scorer([bound], retries=0) as scorer:
        found = scorer.score([Completion("<a>4"), Completion("4")])
    assert kinds(found["gated"]) == [("failure", None), ("score", -1.0)]


@pytest.mark.slow
def test_a_hang_or_crash_of_one_component_costs_one_completion_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "grpo.core.scoring.workers.pool")
    mark = tmp_path / "begun"
    clock.forward_after(mark.exists)
    spec = rubric(
        name="r", version=1, components=[Component(hangs), Component(tagged), Component(waits), Component(counts)]
    )
    found = scores(spec, ["<a>", str(mark), "exit", "b"])
    assert kinds(found["r"]) == [("score", 7.0), ("failure", None), ("failure", None), ("score", 6.0)]
    assert "reward 'r.hangs' (hangs) of their-dist, row 1: it took longer than its time limit of 60 s" in str(
        found["r"][1].reason
    )
    assert kinds(found["r.counts"]) == [("score", 4.0)] * 4


@pytest.mark.slow
def test_components_behind_several_gates_of_nested_rubrics_see_what_all_let_through() -> None:
    seen: list[int] = []

    @reward(version=1, range=(0.0, 1.0), isolation="inline", batch=True)
    def last(completions: list[str]) -> list[float]:
        seen.append(len(completions))
        return [1.0] * len(completions)

    inner = rubric(name="inner", version=1, combine="all", components=[Component(tagged, gate=True), Component(right)])
    spec = rubric(
        name="r", version=1, components=[Component(inner, gate=True), Component(hangs, gate=True), Component(last)]
    )
    found = scores(spec, ["<a>4", "<a>5", "4", "crash", "<a>4 exit"])
    assert seen == [1]
    assert kinds(found["r"]) == [
        ("score", 3.0),
        ("score", 0.0),
        ("score", 0.0),
        ("failure", None),
        ("failure", None),
    ]
    assert found["r.last"][1].reason == "not called: the gate 'r.inner' scored 0, below 1."
    assert found["r.last"][2].reason == "not called: the gate 'r.inner' scored 0, below 1."
    assert [outcome.kind for outcome in found["r.inner.right"]] == ["score", "score", "abstain", "abstain", "score"]


def test_a_failure_that_decides_nothing_is_logged_and_masks_nothing() -> None:
    spec = rubric(name="r", version=1, combine="any", components=[Component(tagged), Component(right)])
    found = scores(spec, ["crash", "crash 4"])
    assert kinds(found["r"]) == [("failure", None), ("score", 1.0)]
    observed = rubric(name="r", version=1, components=[Component(tagged, 0.0), Component(right)])
    assert kinds(scores(observed, ["crash"])["r"]) == [("score", -1.0)]
    assert kinds(scores(observed, ["crash"])["r.tagged"]) == [("failure", None)]


def test_only_the_rubric_itself_enters_the_advantages() -> None:
    outcomes = scores(GATED, ["<a>4", "<a>5", "<a>4", "crash"])
    import torch

    bound = BoundReward(GATED, "their-dist", weight=2.0)
    advantages = advantages_of(outcomes, [bound], 4, BoundAdvantage(group_mean), torch.device("cpu"))
    assert advantages.totals[:3].tolist() == [3.0, -1.0, 3.0]
    assert advantages.trained.tolist() == [True, True, True, False]


def test_a_component_and_a_reward_may_not_share_a_name() -> None:
    other = BoundReward(tagged, "their-dist", alias="gated.tagged")
    with pytest.raises(UsageError, match=r"two rewards are named 'gated\.tagged'"):
        Scorer([BoundReward(GATED, "their-dist"), other])


def test_an_empty_batch_has_no_outcomes() -> None:
    assert scores(GATED, []) == {"gated": [], "gated.tagged": [], "gated.right": []}


@pytest.mark.slow
def test_a_rubric_is_checked_like_any_reward(tmp_path: Path) -> None:
    path = tmp_path / "tidy.toml"
    path.write_text(
        'components = [{ reward = "format", weight = 0.2, gate = true }, { reward = "gsm8k.correctness" }]\n'
        '[[cases]]\ncompletion = "<reasoning>\\n2 + 2\\n</reasoning>\\n<answer>\\n4\\n</answer>"\n'
        'row = { answer = "4" }\nexpect = 2.2\n'
    )
    report = check_reward(str(path))
    assert report.ok, str(report)
    path.write_text(path.read_text().replace("2.2", "2.5"))
    assert not check_reward(str(path)).ok


def test_grpo_score_shows_the_components(tmp_path: Path) -> None:
    path = tmp_path / "tidy.toml"
    path.write_text('components = [{ reward = "format", gate = true }, { reward = "gsm8k.correctness" }]\n')
    shown = CliRunner().invoke(cli, ["plugins", "show", str(path)])
    assert "  format: format, weight 1, a gate that passes from 1\n" in shown.output
    assert f"Use: grpo run --reward {path}:format.tags=..." in shown.output
    command = [sys.executable, "-m", "grpo", "score", "--reward", f"{path}:as=t"]
    row = '{"completion": "#### 4", "answer": "4"}\n'
    done = subprocess.run(command, input=row, capture_output=True, text=True, check=True)
    [line] = done.stdout.splitlines()
    assert list(json.loads(line)["scores"]) == ["t", "t.format", "t.gsm8k.correctness"]
    assert "t.gsm8k.correctness" in done.stderr


@pytest.mark.slow
def test_a_run_trains_on_a_rubric_and_logs_its_components(tiny_model: Path, vowels: str, tmp_path: Path) -> None:
    from grpo.core.record.run_dir import open_run_dir, read_json, read_metrics, read_rollouts

    path = tmp_path / "both.toml"
    path.write_text(f'components = [{{ reward = "{vowels}" }}, {{ reward = "length:target=5", weight = 0.5 }}]\n')
    small_run(
        tmp_path / "run",
        env="gsm8k:size=8",
        rewards=[f"{path}:weight=2"],
        model=str(tiny_model),
        train={"steps": 1, "group_size": 2},
        rollout={"max_completion_length": 8},
    )
    run = open_run_dir(tmp_path / "run")
    [row] = read_metrics(run)
    parts = row["rewards/both.vowels/mean"] + 0.5 * row["rewards/both.length/mean"]
    assert row["rewards/both/mean"] == pytest.approx(parts)
    assert row["reward"] == pytest.approx(2 * parts)
    assert row["rewards/both.length/failure"] == 0.0
    assert read_rollouts(run, 1)[0]["outcome.both.vowels"] == "score"
    lock = read_json(run.versions)["plugins"]["reward both"]
    assert [part["plugin"] for part in lock["components"]] == ["vowels", "length"]
