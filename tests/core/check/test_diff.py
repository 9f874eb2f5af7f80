"""What a change of rewards does: flips, signal lost and gained, by the advantages that the trainer computes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner

from grpo.core.check.diff import Difference, compare
from grpo.core.cli.diff import diff
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.advantages.estimators import group_mean


def scores(*values: float | str | None) -> list[Outcome]:
    return [
        Outcome("failure", reason="broke") if isinstance(v, str) else Outcome("abstain" if v is None else "score", v)
        for v in values
    ]


def compared(
    old: list[Outcome], new: list[Outcome], groups: str = "aabb", scale: Literal["group", "none"] = "group"
) -> Difference:
    return compare(list(groups), {"r": old}, {"r": new}, {"r": 1.0}, {"r": 1.0}, partial(group_mean, scale=scale))


def test_nothing_changes_when_the_rewards_do_not() -> None:
    difference = compared(scores(1, 0, 1, 1), scores(1, 0, 1, 1))
    assert (difference.flips, difference.lost_signal, difference.gained_signal, difference.mean_shift) == (
        (),
        (),
        (),
        0.0,
    )
    assert difference.worst(9) == []


def test_a_flip_and_a_signal_lost_or_gained_are_told_apart() -> None:
    difference = compared(scores(1, 0, 3, 3, 1, 0), scores(0, 1, 3, 2, 2, 2), "aabbcc")
    assert [change.index for change in difference.flips] == [0, 1]
    assert (difference.lost_signal, difference.gained_signal) == (("c",), ("b",))
    assert (difference.groups, difference.mean_old, difference.mean_new) == (3, 8 / 6, 10 / 6)
    assert {change.group for change in difference.worst(2)} == {"a"}


def test_members_of_a_group_need_not_stand_together() -> None:
    mixed = compared(scores(1, 5, 0, 5), scores(0, 5, 1, 5), "abab")
    assert [change.index for change in mixed.flips] == [0, 2]


def test_without_scaling_advantages_are_distances_from_the_mean() -> None:
    difference = compared(scores(4, 0, 0, 0), scores(8, 0, 0, 0), "aaaa", scale="none")
    assert [(c.old.advantage, c.new.advantage) for c in difference.changes] == [(3, 6), (-1, -2), (-1, -2), (-1, -2)]
    assert difference.flips == ()


def test_failures_and_abstentions_have_no_total_and_no_advantage() -> None:
    difference = compared(scores(1, 0, None, 1), scores(1, "boom", None, 1))
    assert (difference.unscored_old, difference.unscored_new) == (1, 2)
    assert difference.changes[1].new == difference.changes[1].new.__class__(None, 0.0)
    assert difference.lost_signal == ("a",)
    nothing = compared(scores(None, None), scores(None, None), "aa")
    assert (nothing.mean_old, nothing.mean_new) == (None, None)


def test_weights_count() -> None:
    outcomes = {"r": scores(1, 0), "s": scores(0, 1)}
    difference = compare("aa", outcomes, outcomes, {"r": 2.0, "s": 1.0}, {"r": 1.0, "s": 2.0})
    assert len(difference.flips) == 2


ROWS = [
    {"question": "a", "answer": "1200", "completion": "<answer>1,200</answer>"},
    {"question": "a", "answer": "1200", "completion": "<answer>7</answer>"},
    {"question": "b", "answer": "72", "completion": "<answer>72</answer>"},
    {"question": "b", "answer": "72", "completion": "\x1b[31mI do not know.", "extra": 1},
]


def grpo(*arguments: str) -> str:
    """Runs `grpo diff` in this process, which has torch loaded, and returns what it prints."""
    done = CliRunner().invoke(diff, arguments)
    return done.stdout if done.exit_code == 0 else f"refused: {done.exception}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_command_compares_a_file() -> None:
    rewards = ("--old", "gsm8k.correctness:variant=gist", "--new", "gsm8k.correctness", "--new", "length:weight=0.1")
    printed = grpo("rows.jsonl", *rewards)
    assert "4 completions in 2 groups" in printed
    assert "signal gained      1 group (a)" in printed
    assert "\x1b" not in printed
    values = json.loads(grpo("rows.jsonl", *rewards, "--json", "--limit", "1"))
    assert (values["gained_signal"], values["lost_signal"], values["flips"], len(values["worst"])) == (["a"], [], 0, 1)


@pytest.mark.usefixtures("folder")
def test_the_groups_are_those_of_the_column() -> None:
    rewards = ("--old", "gsm8k.correctness", "--new", "gsm8k.correctness")
    assert "in 2 groups" in grpo("rows.jsonl", *rewards)
    assert "in 4 groups" in grpo("rows.jsonl", *rewards, "--group-column", "completion")
    assert "line 1: no column 'extra'" in grpo("rows.jsonl", *rewards, "--group-column", "extra")


@pytest.mark.slow
def test_the_command_compares_all_steps_of_a_run(full_run: Path, vowels: str) -> None:
    rewards = ("--old", vowels, "--new", f"{vowels}:weight=-1,as=consonants")
    values = json.loads(grpo(str(full_run), *rewards, "--json", "--limit", "8"))
    assert (values["completions"], values["groups"]) == (8, 4)
    assert values["flips"] == len(values["worst"]) > 0
    assert values["mean"][0] == pytest.approx(-values["mean"][1])


def test_what_cannot_be_compared_is_refused(folder: Path) -> None:
    rewards = ("--old", "format", "--new", "format")
    assert "No such file" in grpo("nowhere.jsonl", *rewards)
    (folder / "plain.jsonl").write_text('{"completion": "x"}', encoding="utf-8")
    assert "Use --group-column" in grpo("plain.jsonl", *rewards)
    (folder / "empty.jsonl").write_text("", encoding="utf-8")
    assert "has no rows" in grpo("empty.jsonl", *rewards)
    assert "is not a run directory" in grpo(".", *rewards)


def test_a_reward_of_groups_is_compared_with_the_groups_of_the_advantages(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from grpo import reward\n@reward(version=1, scope='group', isolation='inline')\n"
        "def fewer(completions: list[str]) -> list[float]:\n"
        "    return [float(len(text) == min(map(len, completions))) for text in completions]\n",
        encoding="utf-8",
    )
    values = json.loads(grpo("rows.jsonl", "--old", "format", "--new", "./mine.py:fewer", "--json"))
    assert values["mean"][1] == 0.75, "one of the first group, and both of the second, which are as long"
