"""The environment gsm8k as the host, the engine and gymnasium see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import grpo.envs
from grpo.envs.gsm8k.spec import GSM8K
from grpo.envs.text.templates import TEMPLATES
from grpo.plugins.errors import DatasetError, OptionError

GOOD = '{"question": "q", "answer": "1+1=<<1+1=2>>2\\n#### 2"}\n'


def test_the_hook_offers_it_with_its_rewards_and_verifier() -> None:
    assert GSM8K in grpo.envs.grpo_envs()
    assert (GSM8K.rewards, GSM8K.verifier) == (("proximity", "gsm8k.soft_format"), "gsm8k")
    assert (GSM8K.max_turns, GSM8K.hub_dataset) == (1, "openai/gsm8k")


def test_every_option_is_documented() -> None:
    assert all(f"\n    {option.name}: " in GSM8K.doc for option in GSM8K.options)


def test_the_embedded_rows_need_no_options() -> None:
    assert GSM8K.dataset is not None
    train, test = GSM8K.dataset("train"), GSM8K.dataset("test")
    assert len(train) == len(test) == 1000
    assert all(set(row) == {"question", "answer", "solution"} and int(row["answer"]) > 0 for row in train)


def test_all_real_rows_load(shared_data: Path) -> None:
    folder = str(shared_data / "gsm8k")
    assert [len(GSM8K.dataset(split, dataset=folder)) for split in ("train", "test")] == [7473, 1319]


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_real_row_can_be_asked_and_demonstrated(shared_data: Path, template: Any) -> None:
    env = GSM8K(template=template)
    for row in GSM8K.dataset("test", dataset=str(shared_data / "gsm8k")):
        observation, info = env.reset(options={"row": row})
        assert info["row"] == row
        assert info["prompt"][-1] == {"role": "user", "content": observation}
        assert info["demonstration"].count(row["answer"]) >= 1


@pytest.mark.parametrize("name", ["grpo/gsm8k-v1", "grpo.envs:grpo/gsm8k-v1"])
def test_gymnasium_makes_an_environment_that_passes_its_checker(name: str) -> None:
    check_env(gymnasium.make(name, level="hard", size=20).unwrapped)


def test_gymnasium_checks_real_rows(shared_data: Path) -> None:
    env = gymnasium.make("grpo/gsm8k-v1", dataset=str(shared_data / "gsm8k" / "test.jsonl"), template="think")
    check_env(env.unwrapped)
    _, info = env.reset(seed=1)
    assert info["demonstration"].startswith("<think>")
    assert env.step("42")[1:4] == (0.0, True, False)


@pytest.mark.parametrize("vector", [gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv])
def test_it_runs_in_gymnasiums_vector_environments(vector: Any) -> None:
    envs = vector([lambda: gymnasium.make("grpo/gsm8k-v1", size=20)] * 2)
    questions, info = envs.reset(seed=3)
    assert questions[0] != questions[1]
    assert [prompt[-1]["content"] for prompt in info["prompt"]] == list(questions)
    _, rewards, ended, cut, _ = envs.step(("1", "2"))
    assert (rewards.tolist(), ended.tolist(), cut.tolist()) == ([0.0, 0.0], [True, True], [False, False])
    envs.close()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{broken", "not JSON"),
        ("[1]", "found a list"),
        ('{"question": "q"}', "no column 'answer'"),
        ('{"question": " ", "answer": "#### 2"}', "is empty"),
        ('{"question": "q", "answer": "#### two"}', "'two'"),
        ('{"question": 1, "answer": "#### 2"}', "must be text"),
    ],
)
def test_a_bad_line_of_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, fault: str) -> None:
    (tmp_path / "rows.jsonl").write_text(GOOD * 2 + line + "\n" + GOOD * 20)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError) as caught:
        GSM8K.dataset("train", dataset="rows.jsonl")
    assert str(caught.value).startswith("rows.jsonl, line 3: ")
    assert fault in str(caught.value)


def test_columns_of_a_file_are_named_by_options(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"ask": f"q{n}", "gold": n, "hint": "h"}) + "\n" for n in range(10)))
    (row,) = GSM8K.dataset("test", dataset=str(path), question="ask", answer="gold")
    assert row == {"ask": "q9", "gold": 9, "hint": "h", "question": "q9", "answer": "9", "solution": "9"}
    env = GSM8K(dataset=str(path), question="ask", answer="gold")
    assert env.reset(options={"row": row})[1]["row"] == row


@pytest.mark.parametrize(
    ("dataset", "fault"),
    [
        ("embeded", "Did you mean 'embedded'"),
        ("", "no dataset ''"),
        ("gone.jsonl", "no file gone.jsonl"),
        ("gone/rows.csv", "no file gone/rows.csv"),
        ("./gone", "no file gone"),
        ("a/b/c", "no dataset 'a/b/c'"),
        ("x" * 5000, "cannot be looked at"),
        ("~nobody-of-that-name/rows.jsonl", "cannot be looked at"),
    ],
)
def test_a_dataset_that_is_nowhere_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError) as caught:
        GSM8K.dataset("train", dataset=dataset)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"level": "harder"}, "no level 'harder'"),
        ({"template": "xml"}, "no template 'xml'"),
        ({"size": 0}, "size=0"),
        ({"subset": "main"}, "'subset' means nothing for dataset=embedded: it is for local and hub datasets"),
        ({"dataset": "rows.jsonl", "level": "hard"}, "'level' means nothing for dataset=rows.jsonl"),
        ({"dataset": "openai/gsm8k", "size": 10}, "'size' means nothing"),
        ({"dataset": "rows.jsonl", "data_seed": 1}, "'data_seed' means nothing"),
    ],
)
def test_an_option_that_cannot_be_used_is_an_error(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(OptionError) as caught:
        GSM8K.dataset("train", **options)
    assert fault in str(caught.value)
