"""Two runs side by side: what was set otherwise, how far each came, and their metrics by step."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_run import made_run

import grpo
from grpo.plugins.errors import UsageError

pytestmark = pytest.mark.slow  # it imports pandas and the libraries of a run


def test_two_runs_are_compared(tmp_path: Path) -> None:
    made_run(tmp_path / "a", steps=3)
    made_run(tmp_path / "b", steps=4, rewards=["format"])
    compared = grpo.compare(tmp_path / "a", grpo.load(tmp_path / "b"))
    assert compared.settings.loc["train.steps"].to_list() == [3, 4]
    assert compared.settings.loc["rewards"].to_list() == [["proximity"], ["format"]]
    assert "train.lr" not in compared.settings.index
    assert "train.warmup_lr" not in compared.settings.index
    assert compared.results.loc["step"].to_list() == [3, 4]
    assert compared.results.loc["before"].to_list() == [0.4, 0.4]
    assert compared.metrics["reward"].columns.to_list() == ["a", "b"]
    assert compared.metrics.loc[1, ("reward", "a")] == compared.run_a.metrics.loc[1, "reward"]
    assert repr(compared).splitlines()[0].split() == ["run", "a", "b"]
    assert "train.steps" in compared._repr_html_()
    with pytest.raises(UsageError):
        grpo.compare(tmp_path / "a", tmp_path / "nothing")
