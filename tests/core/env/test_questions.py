"""Which episodes ask the same question: by the prompt, and in games by what the row says is hidden."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grpo.core.env.episodes import STARTED, Episode, Episodes, episodes_of
from grpo.core.env.questions import asked_by, question_of, questions_of
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.host import Host


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def episodes(source: str, number: int = 40) -> tuple[BoundEnv, Sequence[Episode]]:
    env = Host.discover().env(source)
    return env, episodes_of(env, "test", limit=number, unbounded=number, describe_tools=False)


def test_rows_with_the_same_prompt_ask_the_same_whatever_their_other_columns(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"question": f"What is {n // 20} + 1?", "answer": n, "id": n} for n in range(400)]
    write(file, rows)
    env, found = episodes(f"rows:dataset={file}")
    assert len(found) == 40
    assert len(set(questions_of(env, found))) == 2


def test_games_differ_by_what_their_rows_hide() -> None:
    env, found = episodes("guess:highest=3", 60)
    assert len({str(episode.prompt) for episode in found}) == 1
    assert len(set(questions_of(env, found))) == 3


def test_each_seed_is_a_question_where_the_rows_of_a_game_say_nothing() -> None:
    env, found = episodes("gym:FrozenLake-v1", 5)
    assert len(set(questions_of(env, found))) == 5


def test_of_many_training_rows_only_those_are_started_that_may_ask_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One held-out row asks in messages what a training row asks in text, one what nobody asks."""
    train = [{"question": f"What is {n} + 1?", "answer": n + 1} for n in range(STARTED + 1)]
    write(tmp_path / "train.jsonl", train)
    write(
        tmp_path / "test.jsonl",
        [
            {"question": [{"role": "user", "content": "What is 7 + 1?"}], "answer": 8},
            {"question": "What is 7 - 1?", "answer": 6},
        ],
    )
    env = Host.discover().env(f"rows:dataset={tmp_path}")
    split = partial(episodes_of, env, limit=None, unbounded=0, describe_tools=False)
    held_out, many = split("test"), split("train")
    started: list[int] = []
    some = Episodes.some
    monkeypatch.setattr(Episodes, "some", lambda self, numbers: started.extend(numbers) or some(self, numbers))
    question = question_of(env, held_out)
    assert asked_by(question, held_out, many) == {question.of(held_out[0])}
    assert started == [7]
    assert asked_by(question, held_out[1:], many) == set()


def test_games_are_looked_at_one_after_the_other() -> None:
    env, found = episodes("guess:highest=3", 60)
    question = question_of(env, found)
    assert asked_by(question, found[:1], found[1:]) == {question.of(found[0])}
    assert asked_by(question, found[:1], []) == set()
