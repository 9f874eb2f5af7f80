"""The two pages on environments: their Python runs, a table lists every option, the examples are environments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import grpo
from grpo.envs.arithmetic.spec import ARITHMETIC
from grpo.envs.code.spec import CODE
from grpo.envs.countdown.spec import COUNTDOWN
from grpo.envs.datasets.problem import read_problem
from grpo.envs.email.spec import EMAIL
from grpo.envs.gsm8k.spec import GSM8K
from grpo.envs.guess.spec import guess
from grpo.envs.gym.spec import GYM
from grpo.envs.python_tool.spec import PYTHON_TOOL
from grpo.envs.rows.spec import ROWS
from grpo.envs.text.templates import TEMPLATES
from grpo.envs.wordle.spec import WORDS, wordle
from grpo.plugins.errors import DatasetError
from grpo.plugins.specs import EnvSpec

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "environments.md").read_text(encoding="utf-8")
WRITING = (DOCS / "writing-environments.md").read_text(encoding="utf-8")
OPTIONS = [
    [line for line in table.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    for table in PAGE.split("| option |")[1:]
]
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE + WRITING, re.DOTALL)


def test_the_example_of_validation_holds() -> None:
    exec(BLOCKS[0], {})


def test_the_gymnasium_example_runs() -> None:
    exec(BLOCKS[1], {})


def test_the_example_environment_passes_the_checker_and_its_rows_can_be_played() -> None:
    example: dict[str, Any] = {"__name__": "example"}
    exec(BLOCKS[2], example)
    (spec,) = example["grpo_envs"]()
    gymnasium.register("example/doubling-v1", entry_point=spec.factory)
    check_env(gymnasium.make("example/doubling-v1").unwrapped)
    assert [option.name for option in spec.options] == ["highest"]
    train, test = (spec.dataset(split, highest=9) for split in ("train", "test"))
    assert not {row["number"] for row in train} & {row["number"] for row in test}
    assert spec.factory().reset(options={"row": train[1]})[1]["row"] == {"number": 3, "answer": "6"}


@pytest.mark.parametrize(
    ("spec", "table"), list(zip([ROWS, GSM8K, CODE, COUNTDOWN, ARITHMETIC, EMAIL, GYM], OPTIONS, strict=True))
)
def test_every_option_stands_in_the_table_with_its_default(spec: EnvSpec, table: list[str]) -> None:
    for option in spec.options:
        line = next(line for line in table if f"`{option.name}`" in line.split("|")[1])
        shown = str(option.default).lower() if isinstance(option.default, bool) else option.default
        assert shown in (None, "") or f"`{shown}`" in line


def test_the_demonstrations_shown_are_the_real_ones() -> None:
    for name, template in TEMPLATES.items():
        shown = template.render("3*4=12", "12").replace("\n", "⏎")
        assert f"| `{name}` | `{shown}` |" in PAGE


def test_the_error_shown_is_the_real_one() -> None:
    with pytest.raises(DatasetError) as caught:
        read_problem({"question": "q", "answer": "twelve"}, "rows.jsonl, line 3")
    assert f"    {caught.value}\n" in PAGE


@pytest.mark.slow
def test_the_example_of_several_turns_holds_and_its_demonstrations_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    example: dict[str, Any] = {"__name__": "example"}
    exec(BLOCKS[3], example)
    (spec,) = example["grpo_envs"]()
    assert grpo.check_env(spec).findings == ()


def test_the_example_of_tools_can_be_called() -> None:
    example: dict[str, Any] = {"__name__": "example"}
    exec(BLOCKS[3] + BLOCKS[4], example)
    env = example["Warehouse"](2)
    env.reset(seed=0)
    (weigh,) = env.tools
    assert [weigh(shell) for shell in "ABC"].count("heavy") == 1
    with pytest.raises(ValueError, match="there is no shell D"):
        weigh("D")


@pytest.mark.parametrize("spec", [guess, wordle, PYTHON_TOOL], ids=lambda spec: spec.name)
def test_every_option_of_the_games_is_in_their_tables(spec: EnvSpec) -> None:
    rows = PAGE.partition(f"| option of {spec.name} |")[2].partition("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {option.name for option in spec.options}


def test_the_count_of_words_is_the_real_one() -> None:
    assert f"| `words` | all, {len(WORDS)} |" in PAGE
