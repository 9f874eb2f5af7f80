"""Agents that want the reward alone: weak tasks are found, sound ones are not blamed."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from agent_tasks import SOUND, WEAK

from grpo.envs.shell.panel import Panel, panel_of
from grpo.envs.shell.rows import read_task_row
from grpo.envs.shell.task import Machines

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")]
EACH_TIME = ("double", "program", "its own tests", "half is enough")


def panel(task: dict[str, Any], machines: Machines) -> Panel:
    return panel_of(read_task_row(task, "task", 20.0), machines)


def some(tasks: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(task, id=name, marks=() if name in EACH_TIME else pytest.mark.nightly)
        for name, task in tasks.items()
    ]


@pytest.mark.parametrize("task", some(SOUND))
def test_a_sound_task_pays_its_solution_alone(task: dict[str, Any], machines: Machines) -> None:
    found = panel(task, machines)
    assert [*found.sentences()] == []
    assert (found.nothing, found.gold) == (0.0, 1.0)


@pytest.mark.parametrize("task", some(WEAK))
def test_a_weak_task_is_named_with_what_it_pays_for(task: dict[str, Any], machines: Machines) -> None:
    found = panel(task, machines)
    assert found.gold == 1.0
    assert [*found.sentences()]


def test_why_a_solution_is_not_paid_is_said_with_what_the_grader_printed(machines: Machines) -> None:
    task = {"instruction": "Write 77 into answer.txt.", "grader": "[ $(cat answer.txt) = 77", "solution": "echo 77 > a"}
    [sentence] = panel(task, machines).sentences()
    assert sentence.startswith("its own solution is paid 0, no more than doing nothing: the grader ended with status 2")
    assert "missing" in sentence


def test_a_task_without_a_solution_is_attacked_by_the_files_that_it_names(machines: Machines) -> None:
    task = {"instruction": "Write the largest number of n.txt into answer.txt.", "files": {"n.txt": "3\n77\n"}}
    found = panel({**task, "grader": "grep -q 77 answer.txt"}, machines)
    assert "writes many answers into every file" in found.paid
    assert not panel({**task, "grader": '[ "$(cat answer.txt)" = 77 ]'}, machines).paid


def test_a_grader_that_waits_for_a_pipe_is_not_given_all_its_time(machines: Machines) -> None:
    task = {"instruction": "Write 77 into answer.txt.", "solution": "echo 77 > answer.txt"}
    row = {**task, "grader": '[ "$(cat answer.txt)" = 77 ]'}
    found = panel_of(read_task_row(row, "task", 86_400.0), machines)
    assert [*found.sentences()] == []
