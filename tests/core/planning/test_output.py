"""What a run writes: trackers that are there, a folder that may be written, checkpoints that can resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_run import made_run

from grpo.core.config.schema import parse_config
from grpo.core.planning.output import decide_output
from grpo.core.record.run_dir import exclusive
from grpo.plugins.errors import UsageError


def save_every(*, fresh: bool = False, **tree: Any) -> int:
    return decide_output(parse_config({"env": "one", **tree}), fresh=fresh)


def test_a_checkpoint_falls_between_generations() -> None:
    assert save_every() == 20
    assert save_every(loss={"num_iterations": 3}) == 21
    assert save_every(loss={"num_iterations": 3}, output={"save_every": 6}) == 6
    with pytest.raises(UsageError, match=r"save_every 10 is not a multiple of loss\.num_iterations 3.*Choose 12\."):
        save_every(loss={"num_iterations": 3}, output={"save_every": 10})


def test_a_tracker_that_is_not_installed_is_refused_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"--report-to wandb: .* pip install 'grpo-kit\[wandb\]'"):
        save_every(output={"report_to": ["wandb"]})
    with pytest.raises(UsageError, match=r"--report-to otel: .* pip install 'grpo-kit\[otel\]'"):
        save_every(output={"report_to": ["otel"]})


def test_a_tracker_of_which_a_part_is_missing_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def parent_is_missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'opentelemetry.exporter'")

    monkeypatch.setattr("importlib.util.find_spec", parent_is_missing)
    with pytest.raises(UsageError, match="--report-to otel: it is not installed"):
        save_every(output={"report_to": ["otel"]})


def test_only_a_fresh_run_wants_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="is not empty"):
        save_every(fresh=True, out=str(tmp_path))
    assert save_every(out=str(tmp_path)) == 20


def test_a_folder_with_a_run_is_continued_unless_the_run_is_in_progress(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    with pytest.raises(UsageError, match=r"is not empty\. Name a new folder, or continue it with: grpo run --resume"):
        save_every(fresh=True, out=str(run.path))
    with exclusive(run), pytest.raises(UsageError, match=r"a run is in progress there\. Name a new folder\.$"):
        save_every(fresh=True, out=str(run.path))
