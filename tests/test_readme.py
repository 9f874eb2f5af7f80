"""README.md and docs/start.md are true: their code runs, the reward keeps its own cases, tables and links are right."""

from __future__ import annotations

import doctest
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from grpo import Completion
from grpo.core.cli.main import COMMANDS
from grpo.envs.text.templates import TEMPLATES
from grpo.plugins.host import Host
from grpo.plugins.specs import RewardSpec

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
START = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
COMMAND_PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
FIRST, REWARD = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def rows_of_table(page: str, header: str) -> list[list[str]]:
    """Returns the cells of the table of a page that begins with this header cell."""
    lines = page.partition(f"\n| {header} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_reward_scores_its_own_cases_as_it_says() -> None:
    names: dict[str, Any] = {}
    exec(REWARD, names)
    spec = names["near"]
    assert isinstance(spec, RewardSpec)
    assert [spec(case.completion, *case.row.values()) for case in spec.cases] == [case.expect for case in spec.cases]


def test_the_reward_pays_for_one_right_number_and_for_no_hedge() -> None:
    names: dict[str, Any] = {}
    exec(REWARD, names)
    near, gold = names["near"], "6 * 7 = <<6*7=42>>42\n#### 42"
    working = gold.partition("\n")[0]
    for template in TEMPLATES.values():
        assert near(template.render(working, "42"), gold) == 1.0
    for hedge in ("41 or 43 or 42", "It is 41 or it is 42.", "#### 41\n#### 42", "41 / 42", "42, 43"):
        assert near(hedge, gold) == 0.0


def test_the_reward_is_found_by_the_specs_that_follow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "right.py").write_text(FIRST, encoding="utf-8")
    (tmp_path / "near.py").write_text(REWARD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    specs = re.findall(r"--reward (\./\S+)", README)
    assert len(specs) == 2
    bound = [Host.discover().reward(text) for text in specs]
    assert [reward.name for reward in bound] == ["right", "near"]
    hedge = Completion("41, 42 or 43", row={"answer": "42"})
    assert [float(reward.call(hedge)) for reward in bound] == [1.0, 0.0]
    assert [(reward.options.get("scale"), reward.weight) for reward in bound][1] == (5.0, 2.0)


def test_the_table_of_commands_is_the_command_line() -> None:
    assert [row[0].strip("`").removeprefix("grpo ") for row in rows_of_table(COMMAND_PAGE, "command")] == list(COMMANDS)


def test_the_table_of_extras_is_the_projects() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [row[0].strip("`") for row in rows_of_table(START, "extra")] == list(extras)


def test_every_link_to_a_file_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert len(links) >= 5
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_what_the_start_page_calls_does_what_it_says() -> None:
    found = doctest.DocTestParser().get_doctest(START, {}, "start.md", "docs/start.md", 0)
    assert len(found.examples) >= 4
    assert doctest.DocTestRunner().run(found).failed == 0


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)(?: |`|$)", README, re.MULTILINE)) <= targets
