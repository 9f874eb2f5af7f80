"""Which episodes ask the same question: by the prompt, and in games by what the row says is hidden."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from grpo.core.env.episodes import episodes_of
from grpo.core.env.questions import asked_by, question_of, questions_of
from grpo.plugins.host import Host

FIELDS = ("env", "prompt", "row", "reset")


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
    assert asked_by(question, found[:1], found[1:]) == {question.of(found[0])}
    assert asked_by(question, found[:1], []) == set()


def test_only_rows_that_are_said_to_ask_the_same_are_started(tmp_path: Any) -> None:
    """Rows on disk know what they ask by a number, which may be the same by chance."""
    file = tmp_path / "rows.jsonl"
    rows = [{"question": f"What is {n % 390} + 1?", "answer": 1} for n in range(400)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    env, held = episodes(f"rows:dataset={file}")
    train = episodes_of(env, "train", limit=None, unbounded=0, describe_tools=False)
    started: list[int] = []

    class OnDemand(list[Any]):
        asked = tuple(place % 50 for place in range(len(train)))

        def __getitem__(self, place: Any) -> Any:
            started.append(place)
            return super().__getitem__(place)

    wanted: list[Any] = [
        SimpleNamespace(**{name: getattr(one, name) for name in FIELDS}, asked=7) for one in held[-10:]
    ]
    question = question_of(env, held)
    assert len(asked_by(question, wanted, OnDemand(train))) == 1, "one of ten that has this number by chance"
    assert [place % 50 for place in started] == [7] * len(started)
    assert len(asked_by(question, wanted, train)) == 10
