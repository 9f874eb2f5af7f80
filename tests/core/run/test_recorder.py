"""The recorder of a run: what is written of a batch, and what a resumed run finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from grpo import Completion
from grpo.core.config.schema import parse_config
from grpo.core.display.progress import Silent
from grpo.core.monitor.health import HealthWatch
from grpo.core.plan import Plan
from grpo.core.planning.decide import make_plan
from grpo.core.record.run_dir import RunDir, create_run_dir, read_metrics, read_rollouts
from grpo.core.run.endings import draw_curves
from grpo.core.run.recorder import Recorder
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.batch.batch import Batch, advantages_of
from grpo.plugins.host import Host


@pytest.fixture
def plan(tiny_model: Path, tmp_path: Path, vowels: str) -> Plan:
    tree = {"env": "gsm8k", "dataset": "embedded", "model": str(tiny_model), "out": str(tmp_path / "planned")}
    return make_plan(parse_config({**tree, "rewards": [vowels], "train": {"limit": 4}}), Host.discover())


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return create_run_dir(tmp_path / "run", {}, {})


def batch_of(plan: Plan, scores: list[float | None], right: tuple[bool | None, ...]) -> Batch:
    """A group whose members scored so; None is a failure."""
    outcomes = {"vowels": [Outcome("score", s) if s is not None else Outcome("failure", None, "broke") for s in scores]}
    return Batch(
        step=1,
        completions=tuple(Completion(f"text {n}", row={"answer": "4"}, token_ids=(1,) * (n + 1)) for n in range(4)),
        outcomes=outcomes,
        advantages=advantages_of(outcomes, plan.rewards, 4, plan.advantage, torch.device("cpu")),
        group_size=4,
        generate_seconds=0.0,
        score_seconds=0.0,
        right=right,
    )


def test_a_failure_is_written_as_one_and_accuracy_leaves_out_what_nobody_knows(plan: Plan, run_dir: RunDir) -> None:
    recorder = Recorder(plan, Host([]), run_dir, Silent())
    metrics = recorder.on_batch(batch_of(plan, [1.0, None, 0.0, 1.0], (True, None, False, True)))
    assert metrics == {"accuracy": pytest.approx(2 / 3)}
    rows = read_rollouts(run_dir, 1)
    assert [row["outcome.vowels"] for row in rows] == ["score", "failure", "score", "score"]
    assert [row["score.vowels"] for row in rows] == [1.0, None, 0.0, 1.0]
    assert rows[1]["reward"] is None
    assert rows[1]["advantage"] == 0.0
    assert rows[1]["reason.vowels"] == "broke"
    assert [row["right"] for row in rows] == [True, None, False, True]
    assert [row["token_ids"] for row in rows] == [[1] * (n + 1) for n in range(4)]


def test_step_0_is_there_only_where_something_was_measured(plan: Plan, run_dir: RunDir) -> None:
    recorder = Recorder(plan, Host([]), run_dir, Silent())
    recorder.started({})
    assert not run_dir.metrics.exists() or read_metrics(run_dir) == []
    recorder.started({"held_out/accuracy": 0.5})
    recorder.on_step({"step": 1, "loss": 0.1})
    assert [json.loads(line) for line in run_dir.metrics.read_text().splitlines()] == [
        {"step": 0, "held_out/accuracy": 0.5},
        {"step": 1, "loss": 0.1},
    ]


def test_a_picture_that_cannot_be_drawn_is_a_warning(plan: Plan, run_dir: RunDir) -> None:
    class Heard(Silent):
        said = ""

        def warned(self, text: str) -> None:
            self.said = text

    heard = Heard()
    run_dir.plot.mkdir()
    Recorder(plan, Host([]), run_dir, heard).on_step({"step": 1, "reward": 0.5})
    draw_curves(run_dir, heard.warned)
    assert "reward.png could not be drawn" in heard.said


def test_a_watch_over_health_that_fails_ends_with_one_warning_and_the_books_go_on(
    plan: Plan, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("nobody thought of this")

    class Heard(Silent):
        said: ClassVar[list[str]] = []

        def warned(self, text: str) -> None:
            self.said.append(text)

    monkeypatch.setattr(HealthWatch, "batch", fails)
    monkeypatch.setattr(HealthWatch, "metrics", fails)
    recorder = Recorder(plan, Host([]), run_dir, Heard())
    recorder.on_batch(batch_of(plan, [1.0, 0.0, 0.0, 1.0], (True,) * 4))
    recorder.on_step({"step": 1, "reward": 0.5})
    assert len(read_rollouts(run_dir, 1)) == 4
    [said] = Heard.said
    assert "the health check is off for the rest of this run" in said
    assert "ValueError: nobody thought of this" in said
