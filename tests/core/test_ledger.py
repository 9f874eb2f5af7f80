"""What the books of a run say of plugins that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from transformers import AutoTokenizer

from grpo import Completion, Verdict, verifier
from grpo.core.config import parse_config
from grpo.core.ledger import Ledger
from grpo.core.plan import make_plan
from grpo.core.progress import Silent
from grpo.core.record import RunDir
from grpo.plugins.binding import BoundVerifier
from grpo.plugins.host import Host


@verifier(version=1, isolation="inline")
def broken(completion: str) -> Verdict:
    raise ValueError("no such answer")


class Heard(Silent):
    """Keeps what it was warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, text: str) -> None:
        self.warnings.append(text)


def test_a_failing_verifier_is_told_of_as_one_when_it_fails(tiny_model: Path, tmp_path: Path) -> None:
    host, heard = Host.discover(), Heard()
    tree = {"env": "gsm8k", "dataset": "embedded", "model": str(tiny_model), "out": str(tmp_path / "run")}
    plan = make_plan(parse_config({**tree, "train": {"limit": 4}, "evaluation": {"size": 2}}), host)
    plan = replace(plan, envs=(replace(plan.envs[0], verifier=BoundVerifier(broken, "dist")),))
    with Ledger(plan, host, RunDir(tmp_path / "run"), heard, AutoTokenizer.from_pretrained(tiny_model)) as ledger:
        assert ledger.judge([Completion("4", row={"answer": "4"})] * 2) == [None, None]
    (warning,) = heard.warnings
    assert warning.startswith("a verifier failed; what it failed on is left out of accuracy")
    assert "ValueError: no such answer" in warning
