"""What a page needs for regression cases: from the locks of a run's rewards, without any code of a plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo.core.report.summary import cases_of
from grpo.plugins.host import Host

REWARDS = """
from pathlib import Path
from grpo import Completion, reward
Path(__file__).with_name("ran").touch()
@reward()
def near(completion: str, answer: str, *, scale: float = 1.0, mark: str = "#") -> float:
    return 1.0
@reward()
def whole(completion: Completion) -> float:
    return 1.0
@reward(scope="group")
def first(completions: list[str], level: list[int]) -> list[float]:
    return [1.0 for _ in completions]
"""
RUBRIC = """
version = 1
[[components]]
reward = "./mine.py:near"
[components.options]
scale = 3
"""


def recorded(folder: Path, *specs: str) -> dict[str, Any]:
    """The versions that a run with these rewards records."""
    host = Host.discover()
    return {"plugins": {spec: host.lock(host.reward(f"{folder}/{spec}")) for spec in specs}}


def test_columns_options_and_groups_come_from_the_locks_and_no_file_is_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(REWARDS)
    (tmp_path / "both.toml").write_text(RUBRIC)
    versions = recorded(tmp_path, "mine.py:near:scale=2", "mine.py:whole", "mine.py:first", "both.toml")
    (tmp_path / "ran").unlink()
    assert cases_of(versions) == {
        "near": {"columns": ["answer"], "options": "{'scale': 2.0}", "grouped": False},
        "whole": {"columns": None, "options": None, "grouped": False},
        "first": {"columns": ["level"], "options": None, "grouped": True},
        "both": {"columns": None, "options": None, "grouped": False},
        "both.near": {"columns": ["answer"], "options": "{'scale': 3.0}", "grouped": False},
    }
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "versions",
    [
        None,
        [],
        {"plugins": []},
        {"plugins": {"a": None, "b": [], "c": {"kind": "reward"}, "d": {"kind": "env", "name": "d"}}},
    ],
)
def test_what_records_no_reward_has_no_cases(versions: Any) -> None:
    assert cases_of(versions) == {}


def test_a_lock_without_columns_or_of_a_stranger_has_cases_with_all_columns() -> None:
    odd = {"kind": "reward", "name": "odd", "columns": [1], "given": "scale", "options": ["scale"], "components": 3}
    versions = {"plugins": {"reward near": {"kind": "reward", "name": "near"}, "reward odd": odd}}
    plain = {"columns": None, "options": None, "grouped": False}
    assert cases_of(versions) == {"near": plain, "odd": plain}
