"""The section on Ray of docs/scale.md is true: its flags, its commands and its lines are the program's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from grpo.core.cli.main import cli
from grpo.core.cluster.ray_cluster import Node
from grpo.core.run.ray.launch import GIVEN
from grpo.core.run.ray.placement import Asked, place

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "scale.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Ray\n")[2].partition("\n## ")[0]


def run_options() -> set[str]:
    command = cli.get_command(click.Context(cli), "run")
    assert command is not None
    return {option for parameter in command.params for option in parameter.opts}


def test_every_flag_of_the_section_is_one_of_grpo_run() -> None:
    commands = [shlex.split(line) for line in re.findall(r"^    (grpo run .*)$", SECTION, re.MULTILINE)]
    named = {word for words in commands for word in words if word.startswith("--")}
    named |= set(re.findall(r"^\| `(--[\w-]+)", SECTION, re.MULTILINE))
    assert {"--on", "--ray-address", "--workers", "--servers", "--nodes", "--env-processes"} <= named
    assert named <= run_options()


def test_the_lines_of_the_section_are_those_of_a_placement() -> None:
    nodes = [Node("a", "10.0.0.1", 16, 8), Node("b", "10.0.0.2", 64, 0)]
    shown = re.findall(r"^    loading onto (.*)$", SECTION, re.MULTILINE)
    assert shown == place(nodes, Asked(workers=8)).lines()


def test_the_variables_that_go_along_are_named() -> None:
    assert [name for name in GIVEN if f"`{name}`" not in SECTION] == []
