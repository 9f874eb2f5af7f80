"""Tasks pay their solutions and nothing else, what is held out is no task of the training, and the agent plays."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from grpo_env_chores import TASKS, chores, chores_agent

from grpo import Host, NotInstalled, check_agent, validate


def rows(split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TASKS / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")
def test_tasks_pay_their_solutions_and_nothing_else() -> None:
    report = validate("grpo-env-chores/chores", split="test", size=2)
    assert report.ok, str(report)
    assert not report.weak, str(report)


def test_no_task_is_in_both_splits() -> None:
    asked = {split: {(row["instruction"], *row["files"].items()) for row in rows(split)} for split in ("train", "test")}
    assert (len(asked["train"]), len(asked["test"])) == (40, 10)
    assert not asked["train"] & asked["test"]


def test_the_agent_keeps_what_an_agent_promises() -> None:
    report = check_agent(chores_agent)
    assert not report.findings, str(report)


def test_mini_swe_agent_takes_its_settings() -> None:
    settings = Path(__file__).parents[1] / "mini.yaml"
    with contextlib.suppress(NotInstalled):  # it is looked for after its settings were read
        Host.discover().agent(f"mini-swe-agent:config={settings}")


def test_grpo_finds_both() -> None:
    host = Host.discover()
    assert host.env("grpo-env-chores/chores").spec is chores
    assert host.agent("grpo-env-chores/chores").spec is chores_agent
