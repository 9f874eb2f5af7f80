"""The environment `rows`: columns named and guessed, prompts of text and of messages, answers, errors with remedies."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import grpo
from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.env.mixture import with_dataset
from grpo.core.planning.decide import make_plan
from grpo.envs.rows.spec import ROWS, Rows
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError, OptionError, UsageError
from grpo.plugins.host import Host

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "environments.md").read_text(encoding="utf-8")


def written(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "my.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def shown(dataset: str, **options: Any) -> dict[str, Any]:
    """Returns what an episode of the first row shows."""
    rows = Rows(dataset=dataset, **options)
    return dict(rows.env().reset(options={"row": rows.rows("train")[0]})[1])


def bound(dataset: str, **options: Any) -> BoundEnv:
    return BoundEnv(ROWS, "grpo-kit", {"dataset": dataset, **options}).settled()


def test_named_columns_become_the_prompt_and_the_answer_and_all_others_stay(tmp_path: Path) -> None:
    data = written(tmp_path, *[{"body": f"{n}?", "label": n, "level": 3} for n in range(3)])
    info = shown(data, prompt="body", answer="label", system="Be brief.")
    assert info["prompt"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "0?"}]
    assert info["row"] == {"body": "0?", "label": 0, "level": 3, "question": "0?", "answer": "0"}
    assert info["gold"] == "0"


def test_messages_are_the_prompt_as_they_are_and_a_system_message_takes_the_place_of_theirs(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "Old.", "name": None},
        {"role": "user", "content": [{"type": "text", "text": "Is it "}, {"type": "text", "text": "so?"}]},
        {"role": "assistant", "content": "Is what?"},
        {"role": "user", "content": "This."},
    ]
    data = written(tmp_path, *[{"prompt": messages, "answer": ["yes", "Yes, it is"]}] * 2)
    info = shown(data)
    assert [message["content"] for message in info["prompt"]] == ["Old.", "Is it so?", "Is what?", "This."]
    assert (info["row"]["question"], info["row"]["answer"], info["gold"]) == ("This.", ["yes", "Yes, it is"], "yes")
    assert shown(data, system="New.")["prompt"][0]["content"] == "New."
    assert shown(data, system="")["prompt"][0]["role"] == "user"


def test_a_reward_reads_the_question_of_messages_as_text(tmp_path: Path) -> None:
    data = written(tmp_path, *[{"question": [{"role": "user", "content": "How many?"}], "answer": "3"}] * 2)
    assert shown(data, prompt="question")["row"]["question"] == "How many?"


def test_a_nested_answer_and_a_worked_completion_are_found_by_name(tmp_path: Path) -> None:
    row = {"problem": "6 * 7?", "reward_model": {"ground_truth": 42.0}, "worked": "6 * 7 = 42"}
    info = shown(written(tmp_path, row, row), answer="reward_model.ground_truth", demonstration="worked")
    assert (info["row"]["answer"], info["demonstration"]) == ("42", "6 * 7 = 42")


def test_what_is_guessed_is_told_and_what_is_named_is_not(tmp_path: Path) -> None:
    data = written(tmp_path, *[{"question": "1 + 1?", "solution": "2"}] * 2)
    spec = bound(data).spec
    assert (spec.verifier, spec.rewards) == ("math", ("math",))
    assert "guessed prompt=question, answer=solution, verifier=math (unless the run names one)." in spec.note
    named = bound(data, prompt="question", answer="solution", verifier="gsm8k").spec
    assert (named.verifier, named.note) == ("gsm8k", "")
    assert bound(data, verifier="none").spec.verifier is None


def test_the_user_is_told_of_a_guessed_context_and_of_columns_that_the_policy_does_not_see(tmp_path: Path) -> None:
    rows = [{"instruction": "Add.", "input": f"{n} and 2", "output": n + 2, "id": 7, "source": ""} for n in range(3)]
    data = written(tmp_path, *rows[:2], {**rows[2], "source": "a book"}, rows[2])
    note = bound(data).spec.note
    assert "guessed prompt=instruction, context=input, answer=output, verifier=math (unless the run names one)." in note
    assert note.endswith("Columns not shown to the policy: source. Rewards read them by their names.")
    assert "input, source." in bound(data, context="").spec.note
    assert shown(data)["prompt"] == [{"role": "user", "content": "Add.\n\n0 and 2"}]
    assert shown(data, context="")["prompt"] == [{"role": "user", "content": "Add."}]
    with pytest.raises(DatasetError, match=r"line 1: no column 'inptu'\. Did you mean 'input'\?.*option 'context'"):
        bound(data, context="inptu")


def test_the_rows_of_a_split_stay_on_disk_with_their_places_and_sizes(tmp_path: Path) -> None:
    data = written(tmp_path, {"prompt": "abc", "answer": "1"}, {"prompt": "é", "answer": 2, "x": 1}, {"prompt": "a"})
    rows = Rows(dataset=data, answer="").rows("train")
    assert list(rows) == [{"prompt": "abc", "answer": "1"}, {"prompt": "é", "answer": 2, "x": 1}]
    assert [getattr(rows, name)[1] for name in ("places", "sizes", "kinds")] == [f"{data}, line 2", 1, 1]


def test_rows_without_an_answer_have_neither_verifier_nor_rewards_of_their_own(tmp_path: Path) -> None:
    spec = bound(written(tmp_path, *[{"prompt": "Write a poem."}] * 2)).spec
    assert (spec.verifier, spec.rewards) == (None, ())
    data = written(tmp_path, *[{"prompt": "Write a poem.", "answer": ""}] * 2)
    assert bound(data, answer="").spec.verifier is None
    assert "answer" in shown(data, answer="")["row"]


def test_dataset_may_come_from_its_own_flag(tmp_path: Path) -> None:
    data = written(tmp_path, *[{"prompt": "1 + 1?", "answer": 2}] * 2)
    config = RunConfig(env="rows", dataset=data)
    assert with_dataset(Host.discover().env("rows"), config).spec.verifier == "math"
    with pytest.raises(OptionError, match="env 'rows' needs a dataset: --env rows:dataset=FILE"):
        with_dataset(Host.discover().env("rows"), RunConfig(env="rows"))


@pytest.mark.parametrize("rest", ["my.jsonl", "openai/gsm8k,prompt=question"])
def test_a_dataset_without_its_option_is_answered_with_the_spec_to_write(rest: str) -> None:
    with pytest.raises(OptionError, match=re.escape(f"Write rows:dataset={rest}. Options: dataset, ")):
        Host.discover().env(f"rows:{rest}")


@pytest.mark.parametrize(
    ("row", "options", "fault"),
    [
        ({"body": "a", "x": 1}, {}, r"line 1: found no column for the prompt .* The row has: body, x\. Name it"),
        ({"body": "a"}, {"prompt": "bdy"}, r"line 1: no column 'bdy'\. Did you mean 'body'\? The row has: body\."),
        ({"prompt": "a"}, {"answer": "gold"}, "no column 'gold'.*with the option 'answer'"),
        ({"prompt": "a", "answer": {"text": "b"}}, {}, r"'answer' must be text.* with a dot: it has text\."),
        (
            {"prompt": "a", "answer": None},
            {},
            "'answer' must be text, a number, true or false, a date or a list of these, found null",
        ),
        ({"prompt": "a", "answer": []}, {}, "'answer' is an empty list"),
        ({"prompt": " ", "answer": 1}, {}, "'prompt' is empty"),
        ({"prompt": 3}, {}, "'prompt' must be text or a list of messages, found a number"),
        ({"prompt": [{"role": "user"}]}, {}, r"message 1: write \{\"role\": \"user\", \"content\": \"...\"\}"),
        ({"prompt": [{"role": "human", "content": "a"}]}, {}, "no role 'human'. Choose one of: system, user"),
        ({"prompt": [{"role": "system", "content": "a"}]}, {}, "no message of the user"),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
            {},
            "ends with a mess",
        ),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}, {}, "a part that is no text"),
        ({"prompt": "\ud800"}, {}, "lone surrogate"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_with_a_remedy(
    tmp_path: Path, row: dict[str, Any], options: dict[str, Any], fault: str
) -> None:
    with pytest.raises(DatasetError, match=fault):
        Rows(dataset=written(tmp_path, row, row), **options).rows("train")


def test_rows_whose_columns_would_be_guessed_otherwise_are_refused(tmp_path: Path) -> None:
    data = written(tmp_path, {"question": "a"}, {"question": "b", "prompt": "c"}, {"question": "d"})
    with pytest.raises(DatasetError, match="line 2: by its columns prompt=prompt and answer=none would be read"):
        Rows(dataset=data).rows("train")
    assert len(Rows(dataset=data, prompt="question", answer="").rows("train")) == 2


def test_a_row_without_a_column_of_the_first_is_named_with_that_column(tmp_path: Path) -> None:
    data = written(tmp_path, {"question": "a", "answer": 1}, {"question": "b"}, {"question": "c", "answer": 3})
    told = r"line 2: no column 'answer', which .*, line 1 has\. Fill it in, or leave the row out\."
    with pytest.raises(DatasetError, match=told):
        Rows(dataset=data).rows("train")
    data = written(tmp_path, {"question": "a", "answer": 1}, {"question": "b", "anwser": 2}, {"question": "c"})
    with pytest.raises(DatasetError, match=r"line 1 has\. Did you mean 'anwser'\? Fill it in"):
        Rows(dataset=data).rows("train")


def test_rows_without_a_known_answer_say_which_columns_there_are(tmp_path: Path) -> None:
    data = written(tmp_path, *[{"question": "a", "reply": "b"}] * 2)
    note = Host.discover().env(f"rows:dataset={data}").settled().spec.note
    assert "found no column for the answer (the row has: question, reply). Name it with answer=COLUMN." in note
    config = parse_config({"env": f"rows:dataset={data}"})
    refusal = (
        f"{data}: found no column for the answer (the row has: question, reply). Name it with answer=COLUMN, "
        "or name a reward with --reward."
    )
    with pytest.raises(UsageError) as caught:
        make_plan(config, Host.discover(), served=False)
    assert str(caught.value) == refusal
    with pytest.raises(UsageError) as caught:
        grpo.validate(f"rows:dataset={data}")
    assert str(caught.value) == refusal


def test_its_rows_can_be_checked_and_validated(tmp_path: Path) -> None:
    golds = ["Paris", 72, "1/2", "x^2 - 1", "B", "2024-05-01"]
    data = written(tmp_path, *[{"prompt": f"Question {n}?", "answer": gold} for n, gold in enumerate([*golds, 0])])
    report = grpo.validate(f"rows:dataset={data}")
    assert report.ok, str(report)
    assert report.rows == len(golds)


@pytest.mark.slow
def test_the_example_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    section = PAGE.partition("## rows\n")[2].partition("\n## ")[0]
    commands = 0
    for _, name, body in re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        if name:
            (tmp_path / name).write_text(body, encoding="utf-8")
            continue
        line, _, expected = body.partition("\n")
        words = [sys.executable, "-m", *shlex.split(line.removeprefix("$ "))]
        environment = {**os.environ, "GRPO_PLUGINS": "grpo-kit"}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout + done.stderr == expected
        commands += 1
    assert commands == 2


@pytest.mark.slow
def test_a_run_trains_on_them_from_python(tmp_path: Path) -> None:
    data = written(tmp_path, *[{"prompt": f"{n} + 1?", "answer": n + 1} for n in range(12)])
    run = grpo.train(
        env=f"rows:dataset={data}", steps=1, prompts_per_step=2, group_size=2, eval_size=1, out=tmp_path / "r"
    )
    assert run.status == "done"
    assert {columns["answer"] for columns in run.rollouts[-1]["columns"]} <= {str(n) for n in range(13)}
