"""Held-out accuracy between steps: when it is due, what it measures, and that training goes on as if nothing was."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo.core.plan import Plan
from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.synced import SyncedRollouts
from grpo.core.rollout.types import Sampled
from grpo.core.run.held_out import HeldOut
from grpo.core.text.stats import Estimate
from grpo.plugins.types import Completion

Told = list[tuple[int, float, str]]


@pytest.fixture
def plan(tiny_model: Path, tmp_path: Path) -> Plan:
    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.plugins.host import Host

    tree = {
        "env": "gsm8k",
        "dataset": "embedded",
        "model": str(tiny_model),
        "out": str(tmp_path / "run"),
        "train": {"limit": 4, "steps": 7},
        "rollout": {"max_completion_length": 8},
        "evaluation": {"size": 4, "every": 3},
    }
    return make_plan(parse_config(tree), Host.discover())


@pytest.fixture
def rollouts(tiny_model: Path) -> SyncedRollouts:
    from grpo.core.policy.load import load_model

    model = load_model(str(tiny_model), "float32")
    return SyncedRollouts(HfRollouts(), lambda: nullcontext(model))


def held_out(plan: Plan, told: Told, judge: Any) -> HeldOut:
    from grpo.core.policy.load import load_tokenizer

    tokenizer = load_tokenizer(plan.source.path)

    def tell(step: int, accuracy: Estimate, env: str) -> None:
        told.append((step, accuracy.mean, env))

    return HeldOut(plan, tokenizer, (tokenizer.eos_token_id,), judge, tell)


def halves(completions: Sequence[Completion]) -> list[bool | None]:
    return [number % 2 == 0 for number in range(len(completions))]


def test_it_is_due_every_so_many_steps_and_after_the_last_one(plan: Plan, rollouts: SyncedRollouts) -> None:
    told: Told = []
    measured = held_out(plan, told, halves)
    due = [bool(measured.between_steps(step, rollouts)) for step in range(1, 8)]
    assert due == [False, False, True, False, False, True, True]
    assert told == [(3, 0.5, ""), (6, 0.5, ""), (7, 0.5, "")]


def test_the_answers_are_greedy_and_training_draws_the_same_numbers_afterwards(
    plan: Plan, rollouts: SyncedRollouts
) -> None:
    seen: list[list[str]] = []

    def judge(completions: Sequence[Completion]) -> list[bool | None]:
        seen.append([one.text for one in completions])
        return [None] * len(completions)

    measured = held_out(plan, [], judge)
    before = torch.get_rng_state()
    metrics = measured.measure(0, rollouts)
    torch.manual_seed(99)
    measured.measure(1, rollouts)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 4
    assert metrics["held_out/accuracy"] != metrics["held_out/accuracy"], "nobody knew, and that is no 0"
    assert (metrics["held_out/problems"], metrics["held_out/questions"]) == (0, 0)
    torch.set_rng_state(before)
    measured.measure(2, rollouts)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_backend_that_draws_from_the_global_generator_does_not_move_it_for_training(
    plan: Plan, tiny_model: Path
) -> None:
    from grpo.core.policy.load import load_model

    class Drawing(HfRollouts):
        def generate(self, *arguments: Any) -> list[Sampled]:
            torch.rand(1)
            return super().generate(*arguments)

    model, before = load_model(str(tiny_model), "float32"), torch.get_rng_state()
    held_out(plan, [], halves).measure(1, SyncedRollouts(Drawing(), lambda: nullcontext(model)))
    assert torch.equal(torch.get_rng_state(), before)


def test_how_far_it_is_is_said_after_a_while_and_then_now_and_then(
    plan: Plan, rollouts: SyncedRollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.core.policy.load import load_tokenizer

    told: list[tuple[int, int]] = []
    single = {"rollout": plan.config.rollout.model_copy(update={"batch_size": 1})}
    alone = dataclasses.replace(plan, config=plan.config.model_copy(update=single))
    tokenizer = load_tokenizer(plan.source.path)
    clock = iter(range(0, 1000, 12))  # a batch of one problem takes 12 s
    monkeypatch.setattr("grpo.core.run.held_out.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    ends = (tokenizer.eos_token_id,)
    HeldOut(alone, tokenizer, ends, halves, lambda *_: None, lambda *so_far: told.append(so_far)).measure(0, rollouts)
    assert told == [(2, 4)]
    monkeypatch.setattr("grpo.core.run.held_out.FIRST_WORD", 0.0)
    monkeypatch.setattr("grpo.core.run.held_out.NEXT_WORD", 12.0)
    HeldOut(alone, tokenizer, ends, halves, lambda *_: None, lambda *so_far: told.append(so_far)).measure(0, rollouts)
    assert told[1:] == [(1, 4), (2, 4), (3, 4)]
