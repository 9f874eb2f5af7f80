"""A step whose completions came from other weights: its gradients go, it is done again, and then the run stops."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.plugins.errors import RunError

pytestmark = pytest.mark.slow


class StaleRollouts(HfRollouts):
    """Samples from the weights of the first sync, until it is told to sync again (or even then)."""

    exact = False

    def __init__(self, *, heals: bool) -> None:
        super().__init__()
        self._heals = heals
        self._first: Any = None
        self.calls: list[bool] = []

    def sync(self, model: Any, *, again: bool = False) -> Mapping[str, float]:
        self.calls.append(again)
        if self._first is None or (again and self._heals):
            self._first = type(model)(model.config)  # a deep copy would keep the forward that trl bound to the model
            self._first.load_state_dict(model.state_dict())
        return super().sync(self._first)

    def differing(self, model: Any) -> list[str]:
        mine = dict(self._first.named_parameters())
        return [name for name, p in model.named_parameters() if not mine[name].equal(p)]


def train(tiny_model: Path, vowels: str, out: Path, rollouts: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    from grpo.core.config.schema import parse_config
    from grpo.core.rollout import open as opening
    from grpo.core.run.job import start
    from grpo.core.run.progress import Silent
    from grpo.plugins.host import Host

    monkeypatch.setattr(opening, "open_rollouts", lambda plan, model, *_: rollouts)
    tree = {
        "env": "gsm8k",
        "dataset": "embedded",
        "model": str(tiny_model),
        "rewards": [vowels],
        "out": str(out),
        "train": {
            "steps": 3,
            "prompts_per_step": 2,
            "group_size": 4,
            "micro_batch_size": 4,
            "lr": 1e-2,
            "lr_schedule": "constant",
        },
        "rollout": {"max_completion_length": 12},
        "evaluation": {"size": 0},
    }
    return start(parse_config(tree), Host.discover(), Silent())


def test_a_stale_batch_is_thrown_away_and_the_step_done_again(
    tiny_model: Path, vowels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.core.record.run_dir import RunDir, read_metrics, read_rollouts

    rollouts = StaleRollouts(heals=True)
    run = train(tiny_model, vowels, tmp_path / "run", rollouts, monkeypatch)
    rows = read_metrics(RunDir(run.path))
    assert run.status == "done"
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row.get("sync/steps_again", 0.0) for row in rows] == [0.0, 1.0, 1.0]
    assert rollouts.calls == [False, False, True, False, True]
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3, "trained on a stale batch"
    assert all(len(read_rollouts(RunDir(run.path), step)) == 8 for step in (1, 2, 3))


def test_what_stays_stale_stops_the_run_naming_the_parameters(
    tiny_model: Path, vowels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = StaleRollouts(heals=False)
    with pytest.raises(RunError, match=r"after a full sync and new completions .*these parameters differ: .*weight"):
        train(tiny_model, vowels, tmp_path / "run", rollouts, monkeypatch)
    assert rollouts.calls[-1]
    assert json.loads((tmp_path / "run" / "state.json").read_text())["status"] == "failed"
