"""What is held out is not trained on: rows that are dropped, made-up episodes that are divided, and what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from grpo.core.env.episodes import episodes_of
from grpo.core.env.processes import starting_place
from grpo.core.env.questions import question_of
from grpo.core.planning.held_out import FEWEST, HeldOutPart, hold_out
from grpo.plugins.host import Host


def divided(source: str, made: int = 480, size: int | None = 200) -> tuple[HeldOutPart, set[bytes], list[bytes]]:
    """Returns the division, the questions that are trained on and those that are held out."""
    env = Host.discover().env(source)
    limit = made if env.spec.dataset is None else None
    train = tuple(episodes_of(env, "train", limit=limit, unbounded=made, describe_tools=False))
    part = hold_out(env, train, size, made=200, opened=starting_place(env, 0, PATIENCE))
    question = question_of(env, [*part.train, *part.held_out])
    for episodes in (part.train, part.held_out):
        assert [episode.index for episode in episodes] == [*range(len(episodes))]
    return part, {question.of(one) for one in part.train}, [question.of(one) for one in part.held_out]


def folder(path: Path, train: list[int], test: list[int]) -> str:
    for name, numbers in (("train", train), ("test", test)):
        rows = [
            {"id": f"{name} {place}", "question": f"What is {n} + 1?", "answer": n} for place, n in enumerate(numbers)
        ]
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"rows:dataset={path}"


def test_held_out_rows_that_ask_what_training_rows_ask_are_dropped_and_that_is_said(tmp_path: Path) -> None:
    source = folder(tmp_path, [*range(100)], [*range(29), 500])
    part, trained, held = divided(source)
    assert [episode.row["answer"] for episode in part.held_out] == ["500"]
    assert not trained & set(held)
    assert part.notes == (
        "env 'rows': 29 of 30 held-out rows ask what training rows ask, and were dropped; 1 is left.",
    )


def test_rows_further_down_take_the_places_of_those_that_are_dropped(tmp_path: Path) -> None:
    part, _, held = divided(folder(tmp_path, [1, 2], [1, 5, 2, 6, 7, 8]), size=3)
    assert [episode.row["answer"] for episode in part.held_out] == ["5", "6", "7"]
    assert len(held) == 3


def test_rows_that_are_all_trained_on_are_no_held_out_rows(tmp_path: Path) -> None:
    part, _, _ = divided(folder(tmp_path, [*range(30)], [*range(30)]))
    assert part.held_out == ()
    assert "30 of 30 held-out rows" in part.notes[0]
    assert "no held-out accuracy is measured" in part.notes[0]


def test_rows_of_one_file_that_come_again_are_divided_without_overlap(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"question": f"What is {n % 95} + 1?", "answer": n % 95} for n in range(100)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    part, trained, held = divided(f"rows:dataset={file}")
    assert not trained & set(held)
    assert [episode.row["answer"] for episode in part.held_out] == ["90", "91", "92", "93", "94"]


@pytest.mark.parametrize(
    "source",
    [
        "gsm8k:level=easy,size=300",
        "arithmetic",
        "arithmetic:lowest=1,highest=1",
        "countdown:size=300",
        "code",
        "email",
        pytest.param("python-tool:size=300", marks=pytest.mark.slow),
        "guess:highest=100",
        "guess:highest=1000",
        "guess:highest=100000",
        pytest.param("wordle", marks=pytest.mark.slow),
    ],
)
def test_no_built_in_environment_holds_out_what_it_trains_on(source: str) -> None:
    part, trained, held = divided(source)
    assert not trained & set(held)
    assert len(part.train) >= 200
    assert len(set(held)) >= (FEWEST if source != "arithmetic:lowest=1,highest=1" else 7)


def test_episodes_that_are_nearly_all_trained_on_are_divided_by_question() -> None:
    part, trained, held = divided("guess:highest=100", made=1000)
    assert len(held) == len(set(held)), "each question once"
    assert len(held) >= FEWEST
    assert not trained & set(held)
    again, _, once_more = divided("guess:highest=100", made=1000)
    assert (again, once_more) == (part, held)


def test_too_few_questions_to_hold_some_out_are_measured_on_and_that_is_said() -> None:
    part, trained, held = divided("guess")
    assert set(held) == trained
    assert "only 15 different questions, too few to hold some out" in part.notes[0]
    assert "measured on questions that are trained on" in part.notes[0]


def test_a_few_different_questions_in_many_rows_are_said() -> None:
    part, _, _ = divided("arithmetic:lowest=1,highest=1")
    assert part.notes == (
        "env 'arithmetic': its 200 held-out problems ask only 7 different questions. The interval of its accuracy "
        "counts these, and is wide.",
    )


@pytest.mark.slow
def test_the_questions_of_a_plan_are_counted_where_it_is_shown() -> None:
    from grpo.core.config.schema import parse_config
    from grpo.core.display.terminal import describe
    from grpo.core.planning.decide import make_plan

    def shown(source: str) -> tuple[str, Any]:
        plan = make_plan(parse_config({"env": source}), Host.discover())
        return dict(describe(plan, None))["environment"], plan.notes

    assert shown("arithmetic:lowest=1,highest=2")[0].endswith("200 held out, 118 different")
    assert shown("gsm8k")[0].endswith("200 held out")
    environment, notes = shown("guess")
    assert environment.endswith("200 held out, 15 different")
    assert any("too few to hold some out" in note for note in notes)
