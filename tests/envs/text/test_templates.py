"""Templates: the layouts asked for and demonstrated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from grpo.envs.datasets.problem import read_problem
from grpo.envs.text import TemplateName
from grpo.envs.text.templates import TEMPLATES, choose_template
from grpo.plugins.errors import OptionError

# What a demonstration must look like, written independently of the patterns; group 2 is the answer.
LAYOUTS = {
    "reasoning": r"<reasoning>\n(.+)\n</reasoning>\n<answer>\n([^\n<]+)\n</answer>\n",
    "solution": r"<start_working_out>(.+)<end_working_out><SOLUTION>([^\n<]+)</SOLUTION>",
    "think": r"<think>\n(.+)\n</think>\n([^\n<]+)",
    "hash": r"(.+)\n#### ([^\n<]+)",
}


def test_every_named_template_has_a_layout_here() -> None:
    assert set(LAYOUTS) == set(TEMPLATES) == set(get_args(TemplateName)) - {"custom"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_demonstration_of_gsm8k_has_the_layout(shared_data: Path, name: str) -> None:
    template = choose_template(name)
    layout = re.compile(LAYOUTS[name], re.DOTALL)
    with (shared_data / "gsm8k" / "test.jsonl").open(encoding="utf-8", newline="\n") as file:
        for line in file:
            problem = read_problem(json.loads(line), "test")
            match = layout.fullmatch(template.render(problem.reasoning, problem.answer))
            assert match is not None
            assert match.groups() == (problem.reasoning, problem.answer)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_system_text_shows_the_layout(name: str) -> None:
    template = choose_template(name)
    for piece in re.split(r"\{reasoning\}|\{answer\}", template.pattern):
        assert piece.strip() in template.system
    assert "{" not in template.system


def test_a_custom_pattern_is_demonstrated_and_asked_for() -> None:
    template = choose_template("custom", pattern="{{reasoning}} => [{answer}]")
    assert template.render("use {answer} \\1", "5") == "{use {answer} \\1} => [5]"
    assert "=> [the final number]" in template.system


def test_the_system_text_can_be_replaced_or_left_out() -> None:
    assert choose_template("hash", system="Be brief.").system == "Be brief."
    assert choose_template("hash", system="").system == ""
    assert choose_template("hash", system="").pattern == TEMPLATES["hash"].pattern


@pytest.mark.parametrize(
    ("name", "pattern", "fault"),
    [
        ("reasonin", None, "Did you mean 'reasoning'"),
        ("custom", None, "needs the option 'pattern'"),
        ("custom", "{answer}", "must hold {reasoning} and {answer}"),
        ("custom", "{reasoning} {answer} {answer}", "once each"),
        ("hash", "{reasoning} {answer}", "has its own pattern"),
    ],
)
def test_options_that_make_no_template_are_errors(name: str, pattern: str | None, fault: str) -> None:
    with pytest.raises(OptionError) as caught:
        choose_template(name, pattern=pattern)
    assert fault in str(caught.value)
