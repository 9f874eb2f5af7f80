"""Which episodes ask the same question: by the prompt, and in games by what the row says is hidden."""

from __future__ import annotations

import json
from typing import Any

from grpo.core.env.episodes import episodes_of
from grpo.core.env.questions import asked_by, question_of, questions_of
from grpo.plugins.host import Host


def episodes(source: str, number: int = 40) -> tuple[Any, list[Any]]:
    env = Host.discover().env(source)
    return env, episodes_of(env, "test", limit=number, unbounded=number, describe_tools=False)


def test_rows_with_the_same_prompt_ask_the_same_whatever_their_other_columns(tmp_path: Any) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"question": f"What is {n // 20} + 1?", "answer": n, "id": n} for n in range(400)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
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


def test_questions_are_looked_for_one_episode_after_the_other() -> None:
    env, found = episodes("guess:highest=3", 60)
    question = question_of(env, found)
    wanted = {question.of(found[0])}
    assert asked_by(question, wanted, iter(found[1:])) == wanted
    assert asked_by(question, wanted, iter([])) == set()
