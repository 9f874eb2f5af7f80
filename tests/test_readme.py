"""README.md and docs/start.md are true: their code runs, the check finds what is shown, tables and links are right."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from grpo import Completion, check_reward
from grpo.core.cli.main import COMMANDS
from grpo.plugins.host import Host
from grpo.plugins.specs import RewardSpec

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
START = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
COMMAND_PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
[REWARD] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
[CONSOLE] = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
BASES = ("https://github.com/grpo-kit/grpo-kit/blob/main/", "https://raw.githubusercontent.com/grpo-kit/grpo-kit/main/")


def rows_of_table(page: str, header: str) -> list[list[str]]:
    """Returns the cells of the table of a page that begins with this header cell."""
    lines = page.partition(f"\n| {header} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_reward_scores_its_own_cases_as_it_says() -> None:
    names: dict[str, Any] = {}
    exec(REWARD, names)
    spec = names["right"]
    assert isinstance(spec, RewardSpec)
    assert [spec(case.completion, *case.row.values()) for case in spec.cases] == [case.expect for case in spec.cases]


@pytest.mark.core
@pytest.mark.slow
def test_the_check_finds_in_the_reward_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "right.py").write_text(REWARD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    spec = re.findall(r"^\$ grpo plugins check (\S+)$", CONSOLE, re.MULTILINE)[0]
    assert str(check_reward(spec)) == CONSOLE.partition("\n")[2].rstrip("\n")


def test_the_reward_is_found_by_the_spec_that_follows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "right.py").write_text(REWARD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    [spec] = re.findall(r"--reward (\./\S+)", README)
    hedge = Completion("41, 42 or 43", row={"answer": "42"})
    assert float(Host.discover().reward(spec).call(hedge)) == 1.0


def test_the_table_of_commands_is_the_command_line() -> None:
    assert [row[0].strip("`").removeprefix("grpo ") for row in rows_of_table(COMMAND_PAGE, "command")] == list(COMMANDS)


def test_the_table_of_extras_is_the_projects() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [row[0].strip("`") for row in rows_of_table(START, "extra")] == list(extras)


def test_every_link_is_a_full_address_and_those_to_files_lead_somewhere() -> None:
    """PyPI shows this page too, and knows no files beside it."""
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert [link for link in links if "://" not in link] == []
    files = [link.removeprefix(base).partition("#")[0] for link in links for base in BASES if link.startswith(base)]
    assert len(files) >= 20
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)(?: |`|$)", README, re.MULTILINE)) <= targets
