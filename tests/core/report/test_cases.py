"""What a page needs for regression cases of a run's rewards, and that no code of the run itself is run for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_run import made_run

from grpo.core.report.cases import cases_of
from grpo.plugins.host import Host

REWARD = """
from pathlib import Path
from grpo import reward
Path(__file__).with_name("ran").touch()
@reward()
def near(completion: str, answer: str) -> float:
    return 1.0
"""


def config_of(source: Any) -> dict[str, Any]:
    return {"env": "gsm8k", "rewards": [source], "env_rewards": {}}


@pytest.mark.parametrize("table", [False, True])
def test_a_reward_in_a_run_directory_is_left_out_and_its_file_not_run(tmp_path: Path, table: bool) -> None:
    run = made_run(tmp_path / "run", steps=1)
    (run.path / "inside").mkdir()
    for folder in (run.path / "inside", tmp_path):
        (folder / "mine.py").write_text(REWARD)
        source = f"{folder}/mine.py:near"
        found = cases_of(Host.discover(), config_of({"name": source} if table else source))
        assert list(found) == ([] if folder.is_relative_to(run.path) else ["near"])
        assert (folder / "ran").exists() is bool(found)


def test_an_environment_in_a_run_directory_is_left_out_and_its_file_not_run(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", steps=1)
    (run.path / "mine.py").write_text(REWARD)
    config = json.loads(run.config.read_text("utf-8")) | {"env": f"{run.path}/mine.py:near", "rewards": []}
    assert cases_of(Host.discover(), config) == {}
    assert not (run.path / "ran").exists()
