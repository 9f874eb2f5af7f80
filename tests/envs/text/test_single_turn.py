"""The one-turn environment: the contract of reset and step."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from grpo.envs.text.single_turn import QuestionEnv
from grpo.envs.text.templates import choose_template
from grpo.plugins.errors import DatasetError

ROWS = [{"question": f"What is {n} + 1?", "answer": f"{n}+1=<<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}"} for n in range(40)]


def _env(**options: Any) -> QuestionEnv:
    return QuestionEnv(choose_template("hash", **options), lambda: ROWS)


@pytest.mark.filterwarnings("ignore:.*not having a spec:UserWarning")
def test_it_passes_gymnasiums_checker() -> None:
    check_env(_env())


def test_reset_with_a_row_reports_prompt_row_and_demonstration() -> None:
    observation, info = _env(system="Add.").reset(options={"row": ROWS[3]})
    assert observation == "What is 3 + 1?"
    assert info == {
        "prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": "What is 3 + 1?"}],
        "row": {"question": "What is 3 + 1?", "answer": "4", "solution": ROWS[3]["answer"]},
        "demonstration": "3+1=4\n#### 4",
    }


def test_without_a_system_text_the_prompt_is_the_question() -> None:
    _, info = _env(system="").reset(options={"row": ROWS[0]})
    assert info["prompt"] == [{"role": "user", "content": "What is 0 + 1?"}]


def test_a_row_without_working_has_no_demonstration() -> None:
    _, info = _env().reset(options={"row": {"question": "q", "answer": "5"}})
    assert "demonstration" not in info


def test_reset_without_a_row_picks_one_by_the_seed() -> None:
    env, again = _env(), _env()
    picked = [env.reset(seed=seed)[0] for seed in range(30)]
    assert picked == [again.reset(seed=seed)[0] for seed in range(30)]
    assert len(set(picked)) > 10
    env.reset(seed=1)
    assert len({env.reset()[0] for _ in range(30)}) > 10


def test_a_step_ends_the_episode_unscored() -> None:
    env = _env()
    env.reset(options={"row": ROWS[0]})
    assert env.step("1") == ("", 0.0, True, False, {})


def test_a_step_needs_an_open_question_and_a_text() -> None:
    env = _env()
    with pytest.raises(ResetNeeded):
        env.step("1")
    env.reset(options={"row": ROWS[0]})
    with pytest.raises(TypeError, match="not int"):
        env.step(1)  # type: ignore[arg-type]
    env.step("1")
    with pytest.raises(ResetNeeded):
        env.step("1")


def test_reset_takes_raw_rows_and_rows_already_read() -> None:
    env = QuestionEnv(choose_template("hash"), list, question="problem", answer="final")
    raw = {"problem": "q", "final": "5-1=<<5-1=4>>4\n#### 4", "topic": "sums"}
    _, first = env.reset(options={"row": raw})
    _, second = env.reset(options={"row": first["row"]})
    _, third = env.reset(options={"row": {"question": "q", "answer": "4", "solution": raw["final"]}})
    assert first == second
    assert first["demonstration"] == third["demonstration"] == "5-1=4\n#### 4"
    assert first["row"]["topic"] == "sums"


@pytest.mark.parametrize("row", [{"question": "q"}, None, {"question": "q", "answer": "many"}])
def test_a_row_that_cannot_be_used_is_an_error(row: object) -> None:
    with pytest.raises(DatasetError, match="the row given to reset"):
        _env().reset(options={"row": row})


def test_what_a_caller_does_to_info_stays_outside() -> None:
    env = _env()
    _, info = env.reset(options={"row": ROWS[0]})
    info["row"].clear()
    info["prompt"].clear()
    assert env.reset(options={"row": ROWS[0]})[1]["row"]["answer"] == "1"
