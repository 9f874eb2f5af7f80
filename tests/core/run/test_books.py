"""What the books of a run say of plugins that fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from grpo import Completion, Verdict, reward, verifier
from grpo.core.config.schema import parse_config
from grpo.core.plan import Plan
from grpo.core.planning.decide import make_plan
from grpo.core.record.run_dir import RunDir
from grpo.core.run.books import Ledger
from grpo.core.run.progress import Silent
from grpo.plugins.binding import BoundReward, BoundVerifier
from grpo.plugins.host import Host


@verifier(version=1, isolation="inline")
def broken(completion: str) -> Verdict:
    raise ValueError("no such answer")


@reward(version=1, isolation="inline")
def seeding(completion: str) -> float:
    torch.manual_seed(0)
    return 1.0


class Heard(Silent):
    """Keeps what it was warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def plan(tiny_model: Path, tmp_path: Path) -> Plan:
    tree = {"env": "gsm8k", "dataset": "embedded", "model": str(tiny_model), "out": str(tmp_path / "run")}
    made = make_plan(parse_config({**tree, "train": {"limit": 4}, "evaluation": {"size": 2}}), Host.discover())
    scored = replace(made.envs[0], verifier=BoundVerifier(broken, "dist"), rewards=(BoundReward(seeding, "dist"),))
    return replace(made, envs=(scored,))


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def ledger(plan: Plan, heard: Heard, tiny_model: Path, tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(plan, Host([]), RunDir(tmp_path / "run"), heard, AutoTokenizer.from_pretrained(tiny_model)) as made:
        yield made


def test_a_failing_verifier_is_told_of_as_one_when_it_fails(ledger: Ledger, heard: Heard) -> None:
    assert ledger.judge([Completion("4", row={"answer": "4"})] * 2) == [None, None]
    (warning,) = heard.warnings
    assert warning.startswith("a verifier failed; what it failed on is left out of accuracy")
    assert "ValueError: no such answer" in warning


def test_a_reward_that_seeds_torch_does_not_make_every_step_sample_the_same(ledger: Ledger) -> None:
    before = torch.get_rng_state()
    outcomes = ledger.score([Completion("4", row={"answer": "4"})], ledger.begin_scoring())
    assert [outcome.score for outcome in outcomes["seeding"]] == [1.0]
    assert torch.equal(torch.get_rng_state(), before)
