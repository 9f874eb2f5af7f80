"""The environments with made-up rows, as the host, the engine and gymnasium see them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import grpo.core.check.env as grpo_check
from grpo.envs.arithmetic.problems import LEVELS, draw_problem
from grpo.envs.arithmetic.spec import ARITHMETIC
from grpo.envs.countdown.spec import COUNTDOWN
from grpo.envs.datasets.draws import Draws
from grpo.envs.email.spec import EMAIL
from grpo.plugins.errors import DatasetError, OptionError
from grpo.plugins.host import Host
from grpo.plugins.specs import EnvSpec
from grpo.plugins.types import Completion
from grpo.rewards.puzzles.expression import read_expression

SPECS = [ARITHMETIC, COUNTDOWN, EMAIL]


@pytest.mark.parametrize("spec", SPECS)
def test_every_option_is_documented(spec: EnvSpec) -> None:
    assert all(f"\n    {option.name}: " in spec.doc for option in spec.options)


@pytest.mark.parametrize("spec", SPECS)
def test_a_seed_means_the_same_rows_and_no_question_is_in_both_splits(spec: EnvSpec) -> None:
    train, test = spec.dataset("train", size=60), spec.dataset("test", size=60)
    assert (len(train), len(test)) == (60, 60)
    assert train == spec.dataset("train", size=60)
    assert train != spec.dataset("train", size=60, data_seed=1)
    assert not {row["question"] for row in train} & {
        row["question"] for seed in range(3) for row in spec.dataset("test", size=60, data_seed=seed)
    }


def test_the_stream_of_choices_is_fixed_for_good() -> None:
    draws = Draws("countdown 0 train")
    assert [draws.whole(0, 9) for _ in range(8)] == [5, 3, 8, 3, 0, 7, 6, 3]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arithmetic", "countdown", "email:ideal=true"])
def test_the_kit_finds_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_check, "INSTANCES", 50)
    report = grpo_check.check_env(name)
    assert not [str(finding) for finding in report.findings if finding.severity != "note"]


@pytest.mark.parametrize("name", ["arithmetic", "countdown", "email"])
def test_gymnasium_makes_checks_and_batches_it(name: str) -> None:
    env_id = f"grpo.envs:grpo/{name}-v1"
    check_env(gymnasium.make(env_id, size=20).unwrapped)
    envs = gymnasium.make_vec(env_id, num_envs=3, vectorization_mode="sync", size=20)
    questions, info = envs.reset(seed=3)
    assert [prompt[-1]["content"] for prompt in info["prompt"]] == list(questions)
    assert envs.step(("1", "2", "3"))[2].all()
    envs.close()


def test_a_rising_schedule_goes_from_the_easiest_to_the_hardest_and_is_trained_on_in_order(host: Host) -> None:
    levels = [row["level"] for row in ARITHMETIC.dataset("train", schedule="rising", lowest=2, highest=4, size=30)]
    assert levels == [2] * 10 + [3] * 10 + [4] * 10
    assert host.env("arithmetic:schedule=rising").ordered
    assert not host.env("arithmetic").ordered
    assert not host.env("gsm8k").ordered
    test = [row["level"] for row in ARITHMETIC.dataset("test", schedule="rising", size=30)]
    assert test != sorted(test)


def test_every_level_is_asked_about() -> None:
    assert set(Counter(row["level"] for row in ARITHMETIC.dataset("train", size=100))) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("level", LEVELS)
def test_every_step_of_a_calculation_is_right_and_none_is_below_zero(level: int) -> None:
    for number in range(100):
        row = draw_problem(Draws(f"{level} {number}"), level)
        *steps, last = row["solution"].split("\n")
        values = [(read_expression(left).value, int(right)) for left, right in (step.split(" = ") for step in steps)]
        assert all(value == written >= 0 for value, written in values), row
        assert last == f"#### {values[-1][1]}" == f"#### {row['answer']}"


def test_the_answer_of_a_puzzle_reaches_its_target_with_its_numbers() -> None:
    for row in COUNTDOWN.dataset("train", size=200):
        expression = read_expression(row["answer"])
        assert (expression.value, sorted(expression.numbers)) == (row["target"], sorted(row["numbers"])), row


@pytest.mark.parametrize(
    ("spec", "options", "fault"),
    [
        (ARITHMETIC, {"lowest": 4, "highest": 2}, "lowest=4, highest=2"),
        (ARITHMETIC, {"highest": 6}, "levels from 1 to 5"),
        (ARITHMETIC, {"schedule": "risng"}, "Did you mean 'rising'"),
        (ARITHMETIC, {"size": 0}, "size=0"),
        (ARITHMETIC, {"size": 10**11}, "1,000,000 is the most"),
        (COUNTDOWN, {"template": "hash"}, "no template 'hash'"),
        (COUNTDOWN, {"fewest": 5, "most": 4}, "fewest=5, most=4"),
        (COUNTDOWN, {"most": 9}, "2 to 8 numbers"),
        (COUNTDOWN, {"subset": "main"}, "'subset' means nothing"),
        (EMAIL, {"question": "task"}, "'question' means nothing"),
        (EMAIL, {"data_seed": -1}, "data_seed=-1"),
    ],
)
def test_an_option_that_cannot_be_used_is_an_error(spec: EnvSpec, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(OptionError) as caught:
        spec.dataset("train", **options)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("options", "split", "fault"),
    [
        ({}, "dev", "no split 'dev'"),
        ({"fewest": 2, "most": 2, "highest": 2, "highest_target": 2}, "test", "too few different questions"),
        ({"fewest": 2, "most": 2, "highest": 10**9, "highest_target": 2}, "train", "no puzzle found"),
    ],
)
def test_puzzles_that_cannot_be_made_are_an_error(options: dict[str, Any], split: str, fault: str) -> None:
    with pytest.raises(DatasetError) as caught:
        COUNTDOWN.dataset(split, **options)
    assert fault in str(caught.value)


def test_puzzles_of_a_file_are_read_in_the_published_form(tmp_path: Path, host: Host) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"nums": [8, 3, number], "target": 24 * number}) + "\n" for number in (1, 2)))
    row = COUNTDOWN.dataset("test", dataset=str(path))[0]
    assert row == {
        "question": "Use each of the numbers 8, 3, 2 exactly once, with + - * / and brackets, to reach 48.",
        "numbers": [8, 3, 2],
        "target": 48,
    }
    info = COUNTDOWN(dataset=str(path)).reset(options={"row": row})[1]
    assert "demonstration" not in info
    reward = host.reward("countdown")
    assert reward.call(Completion("<answer>8*3*2</answer>", row=info["row"])) == 1.0


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("[1]", "this is a list"),
        ('{"target": 3}', "'numbers'"),
        ('{"numbers": "1 2", "target": 3}', "'numbers'"),
        ('{"numbers": [1, 2.5], "target": 3}', "found 2.5"),
        ('{"numbers": [1, 2], "target": true}', "found True"),
    ],
)
def test_a_puzzle_that_is_none_is_named(tmp_path: Path, line: str, fault: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(line + "\n" + '{"numbers": [1, 2], "target": 3}\n')
    with pytest.raises(DatasetError) as caught:
        COUNTDOWN.dataset("train", dataset=str(path))
    assert str(caught.value).startswith(f"{path}, line 1: ")
    assert fault in str(caught.value)


def test_emails_of_a_file_do_without_the_columns_that_are_missing(tmp_path: Path, host: Host) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text((json.dumps({"task": "Thank Tom.", "recipient": "Tom Baker"}) + "\n") * 2)
    row = EMAIL.dataset("test", dataset=str(path), question="task")[0]
    assert (row["question"], row["keywords"], row["answer"]) == ("Thank Tom.", None, None)
    with pytest.raises(DatasetError, match="'question' must hold the task"):
        EMAIL.dataset("test", dataset=str(path))


def test_the_ideal_email_is_paid_for_only_on_request() -> None:
    plain, ideal = (EMAIL.dataset("train", size=3, ideal=ideal)[0] for ideal in (False, True))
    assert plain["answer"] is None
    assert ideal["answer"] == plain["letter"] == ideal["letter"]
