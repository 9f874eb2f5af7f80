"""docs/code.md: its Python runs, its tables list every option and outcome, its commands can be parsed."""

import re
from pathlib import Path
from typing import get_args

import pytest

from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.pools import close_pools
from grpo.rewards.code.results import Comparison, Outcome
from grpo.rewards.code.spec import code, passing

PAGE = (Path(__file__).parents[3] / "docs" / "code.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    [block] = re.findall(r"```python\n(.*?)\n```\n", PAGE, re.DOTALL)
    exec(block, {})
    close_pools()


def test_every_option_has_its_default_in_the_table() -> None:
    table = PAGE.partition("## Options")[2].partition("\n## ")[0]
    for spec in (code, passing):
        for option in spec.options:
            line = next(line for line in table.splitlines() if f"`{option.name}`" in line[: line.find("|", 1)])
            assert f"`{option.default}`" in line, option


def test_every_outcome_and_comparison_is_named() -> None:
    assert all(f"`{name}`" in PAGE for name in (*get_args(Outcome), *get_args(Comparison)))


def test_every_column_is_named() -> None:
    assert all(f"`{column.name}`" in PAGE for column in code.columns)
    assert code.columns == passing.columns


@pytest.mark.parametrize(
    "option", ["seconds=0", "memory=-1", "tolerance=-1", "credit=half", "credit=threshold,threshold=1.5", "sandbox=no"]
)
def test_options_that_cannot_work_are_refused(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    with pytest.raises(UsageError):
        Host.discover().reward(f"code:{option}")


def test_the_commands_name_rewards_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    specs = re.findall(r"--reward (code\S*)", PAGE)
    assert len(specs) == 2
    for spec in specs:
        Host.discover().reward(spec)
