"""`reasoning_gym:NAME`: real datasets of reasoning-gym, scored by their own graders."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from grpo import validate
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError, OptionError, PluginNotFound
from grpo.plugins.host import Host

pytestmark = [
    pytest.mark.reasoning_gym,
    pytest.mark.filterwarnings("ignore:loadtxt"),  # of a grader, at text that is no matrix
]
SOUND = ("chain_sum", "leg_counting", "spell_backward", "number_sorting", "mini_sudoku", "knights_knaves")


def answered(env: Any, row: Any, text: str) -> tuple[float, dict[str, Any]]:
    env.reset(options={"row": row})
    _, score, ended, cut, info = env.step(text)
    assert ended
    assert not cut
    return score, info


def env_of(host: Host, spec: str) -> tuple[BoundEnv, Any]:
    bound = host.env(spec)
    return bound, pickle.loads(pickle.dumps(bound.spec.factory))(**bound.options)


@pytest.mark.parametrize("name", SOUND)
def test_gold_answers_score_one_and_others_less(host: Host, name: str) -> None:
    bound, env = env_of(host, f"reasoning_gym:{name}:size=6")
    check_env(env, skip_render_check=True)
    rows = bound.rows("test")
    assert rows is not None
    for row in rows:
        _, info = env.reset(options={"row": row})
        assert info["row"] == row
        score, found = answered(env, row, f"Let me think. <answer>no</answer> Or: {info['demonstration']}")
        assert (score, found["success"], found["scores"]) == (1.0, True, {"score": 1.0})
        assert answered(env, row, row["answer"])[0] == 1.0, "without tags the whole text is the answer"
        wrong = answered(env, row, "<answer>I do not know</answer>")
        assert wrong[0] < 1.0
        assert not wrong[1]["success"]


def test_rows_are_the_same_for_the_same_seed_and_differ_between_splits(host: Host) -> None:
    def questions(split: str, **options: Any) -> list[str]:
        text = ",".join(f"{name}={value}" for name, value in {"size": 20, **options}.items())
        rows = host.env(f"reasoning_gym:chain_sum:{text}").rows(split)
        assert rows is not None
        return [row["question"] for row in rows]

    assert questions("train") == questions("train")
    assert questions("train")[:5] == questions("train", size=5)
    assert not set(questions("train")) & set(questions("test"))
    assert questions("train") != questions("train", data_seed=1)
    long = questions("train", min_terms=8, max_terms=8)
    assert all(question.count("+") + question.count("-") >= 7 for question in long)


def test_graders_that_can_be_cheated_are_named_and_the_cheat_is_refused_unless_asked_for(host: Host) -> None:
    bound, env = env_of(host, "reasoning_gym:game_of_life_halting:size=5")
    assert "full marks to every text" in bound.spec.note
    assert "as_published=true" in bound.spec.note
    rows = bound.rows("train") or []
    refused = [answered(env, row, "anything at all") for row in rows]
    assert {(score, info["reason"]) for score, info in refused} == {(0.0, "it is not the right truth value")}
    assert [answered(env, row, row["answer"].lower())[0] for row in rows] == [1.0] * 5
    _, published = env_of(host, "reasoning_gym:game_of_life_halting:size=5,as_published=true")
    assert [answered(published, row, "anything at all")[0] for row in rows] == [1.0] * 5, "mended: take it out"
    assert host.env("reasoning_gym:chain_sum").spec.note == ""


def test_a_grader_that_raises_at_what_it_cannot_read_scores_zero_and_says_why(host: Host) -> None:
    for name, text in (
        ("prime_factorization", "many primes"),
        ("boxnet", "[[]]"),
        ("game_of_life", "{}"),
        ("coin_flip", "9" * 400),
    ):
        _, env = env_of(host, f"reasoning_gym:{name}:size=2")
        score, info = answered(env, {"split": "train", "index": 0}, f"<answer>{text}</answer>")
        assert (score, info["success"]) == (0.0, False)
        assert "the grader raised" in info["reason"], name


@pytest.mark.parametrize("name", ["chain_sum", "graph_color", "propositional_logic", "rubiks_cube"])
def test_solutions_are_accepted_also_those_that_a_dataset_keeps_elsewhere(name: str) -> None:
    report = validate(f"reasoning_gym:{name}:size=8", split="test")
    assert report.ok, str(report)
    assert (report.verdicts["right"], report.rewards[0].lowest) == (8, 1.0)


def test_rows_whose_right_answer_is_empty_are_no_refusal_and_are_told() -> None:
    report = validate("reasoning_gym:ab:size=25")
    assert (report.ok, report.silence_right) == (True, 1)


def test_datasets_that_tell_no_solution_do_not_validate() -> None:
    report = validate("reasoning_gym:rush_hour:size=2")
    assert (report.ok, len(report.without)) == (False, 2)


def test_a_problem_without_a_known_answer_has_no_demonstration(host: Host) -> None:
    _, env = env_of(host, "reasoning_gym:rush_hour:size=1")
    _, info = env.reset(seed=0)
    assert info["row"]["answer"] is None
    assert "demonstration" not in info


@pytest.mark.parametrize(
    ("spec", "error", "why"),
    [
        ("chain_sun", PluginNotFound, "Did you mean 'chain_sum'"),
        ("composite", OptionError, "Name them one by one"),
        ("chain_sum:min_terms=9,max_terms=2", OptionError, "max_terms must be >= min_terms"),
        ("chain_sum:terms=2", OptionError, "no option 'terms'"),
    ],
)
def test_what_cannot_be_made_is_refused(host: Host, spec: str, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        host.env(f"reasoning_gym:{spec}").make()


def test_a_row_of_elsewhere_is_refused(host: Host) -> None:
    _, env = env_of(host, "reasoning_gym:chain_sum:size=2")
    with pytest.raises(DatasetError, match="needs the columns split and index"):
        env.reset(options={"row": {"question": "What is 1 + 1?"}})
