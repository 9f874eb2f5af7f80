"""A step whose completions came from other weights: its gradients go, it is done again, and then the run stops."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.train.sampling.guard import StepGuard
from grpo.plugins.errors import RunError


class Step:
    """A cursor over the micro batches of one step, whose completions are off by so much in each attempt."""

    step = 7

    def __init__(self, micro_batches: int, *off: list[float]) -> None:
        self._micro_batches = micro_batches
        self._off = off
        self.attempt = 0
        self.passes: list[tuple[int, int]] = []
        self.done = 0
        self.guard = StepGuard(0.01, self, lambda tensor: tensor, lambda: ["layer.weight"])

    def rewind(self) -> None:
        self.attempt += 1
        self.done = 0

    def backward(self) -> torch.Tensor:
        off = self._off[self.attempt][self.done]
        self.passes.append((self.attempt, self.done))
        self.done = (self.done + 1) % self._micro_batches
        told = self.guard.compare(torch.full((1, 4), off), torch.zeros(1, 4), torch.ones(1, 4))
        assert told["sampling/sampling_logp_difference/max"] >= off - 1e-6
        return torch.tensor(float(len(self.passes)))


def test_a_step_of_the_policy_goes_by_once() -> None:
    step = Step(2, [0.001, 0.002])
    assert [step.guard.micro_batch(step.backward) for _ in range(2)] == [(torch.tensor(1.0), {}), (2.0, {})]
    assert step.passes == [(0, 0), (0, 1)]


@pytest.mark.parametrize(("off", "first"), [([0.5, 0.0, 0.0], 0), ([0.001, 0.5, 0.0], 1), ([0.001, 0.001, 0.9], 2)])
def test_a_step_is_made_again_up_to_where_it_showed(off: list[float], first: int) -> None:
    step = Step(3, off, [0.0, 0.0, 0.0])
    told = [step.guard.micro_batch(step.backward)[1] for _ in range(3)]
    assert told == [{"sync/steps_again": 1.0} if number == first else {} for number in range(3)]
    assert step.passes == [(0, n) for n in range(first + 1)] + [(1, n) for n in range(3)]


def test_what_is_off_again_stops_the_run_with_both_differences_and_the_names() -> None:
    step = Step(2, [0.5, 0.0], [0.25, 0.0])
    with pytest.raises(
        RunError, match=r"step 7: .* 0\.5 apart on average .* 0\.25 .*these parameters differ: layer\.weight"
    ):
        step.guard.micro_batch(step.backward)


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
    from grpo.core.display.progress import Silent
    from grpo.core.rollout import open as opening
    from grpo.core.run.job import start
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
            "dtype": "float32",
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


@pytest.mark.core
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


@pytest.mark.slow
def test_what_stays_stale_stops_the_run_naming_the_parameters(
    tiny_model: Path, vowels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = StaleRollouts(heals=False)
    with pytest.raises(RunError, match=r"after a full sync and new completions .*these parameters differ: .*weight"):
        train(tiny_model, vowels, tmp_path / "run", rollouts, monkeypatch)
    assert rollouts.calls[-1]
    assert json.loads((tmp_path / "run" / "state.json").read_text())["status"] == "failed"
