"""The environment code as the host, the engine and gymnasium see it; its programs are judged in tests/rewards."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import grpo.envs
from grpo.envs.code.spec import CODE
from grpo.plugins.errors import DatasetError, OptionError

TASK = {"question": "Write f.", "test_list": ["assert f(1) == 1", "assert f(2) == 4"]}


def test_the_hook_offers_it_with_its_reward_and_verifier() -> None:
    assert CODE in grpo.envs.grpo_envs()
    assert (CODE.rewards, CODE.verifier, CODE.max_turns) == (("code:credit=fraction",), "code", 1)


def test_every_option_is_documented() -> None:
    assert all(f"\n    {option.name}: " in CODE.doc for option in CODE.options)


@pytest.mark.parametrize("level", ["exercises", "problems"])
def test_the_embedded_rows_are_the_same_each_time_and_the_splits_share_none(level: Any) -> None:
    train, test = CODE.dataset("train", level=level), CODE.dataset("test", level=level)
    assert train == CODE.dataset("train", level=level)
    assert not {row["question"] for row in train} & {row["question"] for row in test}
    assert all({"question", "entry_point", "code", "test_list"} == set(row) for row in (*train, *test))
    assert len(train) + len(test) == (796 if level == "exercises" else 20)


@pytest.mark.parametrize("level", ["exercises", "problems"])
def test_the_embedded_solutions_pass_and_no_constant_does(level: Any) -> None:
    for row in (*CODE.dataset("train", level=level), *CODE.dataset("test", level=level)):
        space: dict[str, Any] = {}
        exec(row["code"], space)
        for test in row["test_list"]:
            exec(test, space)
        wanted = {re.sub(r".*\) == ", "", test) for test in row["test_list"]}
        assert len(wanted) > 1, row["question"]


def test_another_seed_gives_other_exercises() -> None:
    assert CODE.dataset("train", size=20) != CODE.dataset("train", size=20, data_seed=1)


@pytest.mark.parametrize(
    ("file", "train", "test"),
    [("humaneval/HumanEval.jsonl.gz", 148, 16), ("mbpp/mbpp.jsonl", 877, 97), ("mbpp/sanitized-mbpp.json", 385, 42)],
)
def test_the_published_files_load_as_they_are(shared_data: Path, file: str, train: int, test: int) -> None:
    path = str(shared_data / file)
    assert [len(CODE.dataset(split, dataset=path)) for split in ("train", "test")] == [train, test]
    env = CODE(dataset=path)
    for row in CODE.dataset("test", dataset=path):
        question, info = env.reset(options={"row": row})
        assert info["row"] == row
        assert info["prompt"][-1] == {"role": "user", "content": question}
        assert info["demonstration"].startswith("```python\n")
        assert info["demonstration"].endswith("\n```")


def test_a_human_eval_question_shows_the_program_to_complete(shared_data: Path) -> None:
    path = str(shared_data / "humaneval" / "HumanEval.jsonl.gz")
    row = CODE.dataset("train", dataset=path)[0]
    question, info = CODE(dataset=path).reset(options={"row": row})
    assert question == f"Complete this Python program:\n```python\n{row['prompt'].rstrip()}\n```"
    assert info["demonstration"] == f"```python\n{(row['prompt'] + row['canonical_solution']).strip()}\n```"


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (0, "Write f."),
        (1, "Write f.\nFor example:\nassert f(1) == 1"),
        (9, "Write f.\nFor example:\nassert f(1) == 1\nassert f(2) == 4"),
    ],
)
def test_a_question_shows_as_many_assertions_as_asked_for(shown: int, text: str) -> None:
    assert CODE(show_tests=shown).reset(options={"row": TASK})[0] == text


def test_the_system_message_asks_for_a_block_unless_another_is_given() -> None:
    def prompt(**options: Any) -> list[dict[str, str]]:
        shown: list[dict[str, str]] = CODE(**options).reset(options={"row": TASK})[1]["prompt"]
        return shown

    assert "```python" in prompt()[0]["content"]
    assert prompt(system="Be brief.")[0] == {"role": "system", "content": "Be brief."}
    assert [message["role"] for message in prompt(system="")] == ["user"]


def test_columns_that_data_sets_use_are_found_and_others_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"id": 3, "statement": "Echo it.", "inputs": ["1"], "outputs": ["1"]}
    path.write_text((json.dumps(row) + "\n") * 10)
    assert list(CODE.dataset("test", dataset=str(path))) == [row]
    path.write_text((json.dumps({"ask": "Echo it.", "tests": "assert f()"}) + "\n") * 10)
    assert CODE.dataset("train", dataset=str(path), question="ask")[0]["ask"] == "Echo it."
    with pytest.raises(DatasetError, match=r"rows.jsonl, line 1: no column 'question'; the row has: ask, tests"):
        CODE.dataset("train", dataset=str(path))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ([1], "found a list"),
        ({"question": 5, "tests": "x"}, "must hold the task as text"),
        ({"question": " ", "tests": "x"}, "must hold the task as text"),
        ({"question": "q"}, "no tests"),
        ({"question": "q", "tests": []}, "no tests"),
        ({"question": "q", "test_cases": ["assert f()"]}, "no tests; the row has: question, test_cases. A row needs"),
        ({"question": "q", "inputs": ["1"]}, "no tests"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path: Path, row: Any, fault: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"question": "q", "tests": "assert f()"}, row] * 5))
    with pytest.raises(DatasetError, match=f"rows.json, row 2: .*{fault}"):
        CODE.dataset("train", dataset=str(path))


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.json", b"{", "not JSON"),
        ("a.json", b"{}", "holds a dict"),
        ("a.jsonl.gz", b"no gzip", "not readable as gzip"),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 1000, mtime=0)[:-20], "not readable as gzip"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=f"{name}.*{fault}"):
        CODE.dataset("train", dataset=str(tmp_path / name))


@pytest.mark.parametrize(
    "options",
    [
        {"level": "hard"},
        {"size": 0},
        {"size": 100_000},
        {"data_seed": -1},
        {"show_tests": -1},
        {"question": "q"},
        {"subset": "full"},
        {"dataset": "rows.jsonl", "size": 5},
    ],
)
def test_an_option_that_cannot_be_used_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        CODE.dataset("train", **options)


def test_gymnasium_makes_an_environment_that_passes_its_checker() -> None:
    env = gymnasium.make("grpo.envs:grpo/code-v1", level="problems").unwrapped
    check_env(env)
    env.reset(seed=1)
    assert env.step("def f(): ...")[1:4] == (0.0, True, False)
