"""`guess` and `wordle`: rules, hostile actions, demonstrations that win, and the conformance of both."""

from __future__ import annotations

import itertools
import random
from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded

import grpo.envs
from grpo import check_env
from grpo.envs.guess.spec import guess
from grpo.envs.wordle.game import marks
from grpo.envs.wordle.spec import WORDS, wordle
from grpo.plugins.errors import OptionError


def played(env: Any, *actions: str) -> list[tuple[Any, ...]]:
    return [env.step(action) for action in actions]


def test_both_are_offered_and_known_to_gymnasium() -> None:
    assert {"guess", "wordle"} <= {spec.name for spec in grpo.envs.grpo_envs()}
    for name in ("guess", "wordle"):
        assert gymnasium.make(f"grpo.envs:grpo/{name}-v1").reset(seed=1)[0].startswith("Guess a")


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["guess", "guess:lowest=0,highest=1000,reminds=false", "wordle", "wordle:words=9"])
def test_both_pass_their_check(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    assert check_env(spec).findings == ()


def test_a_guess_gets_a_hint_until_it_is_right() -> None:
    env = guess(highest=15)
    question, info = env.reset(options={"row": {"number": 6}})
    assert question == "Guess a number from 1 to 15. You have 4 guesses."
    assert info["row"] == {"number": 6}
    steps = played(env, "8", "I say 4", "6")
    assert [step[0] for step in steps] == [
        "It is lower than 8. So it is from 1 to 7.",
        "It is higher than 4. So it is from 5 to 7.",
        "Right.",
    ]
    assert [step[1:4] for step in steps] == [(0.0, False, False), (0.0, False, False), (1.0, True, False)]
    assert steps[2][4] == {"readable": True, "success": True}
    with pytest.raises(ResetNeeded):
        env.step("6")


@pytest.mark.parametrize(
    "action", ["", "none", "99", "-3", "3.5", "1,5", "7" * 500, "\ud800", "\x00", "\uff15", "3 or 40"]
)
def test_an_action_without_a_number_in_the_range_costs_a_turn(action: str) -> None:
    env = guess(highest=15, turns=2)
    env.reset(options={"row": {"number": 3}})
    hint, reward, terminated, _, info = env.step(action)
    assert (hint, reward, terminated) == ("Write a number from 1 to 15.", 0.0, False)
    assert info == {"readable": False, "success": False}
    assert env.step("1")[:3] == ("The number was 3.", 0.0, True)


def test_only_the_last_number_counts() -> None:
    env = guess(highest=15)
    env.reset(options={"row": {"number": 3}})
    assert env.step("1 2 3 4 5")[1] == 0.0


def test_demonstrations_win_in_time_and_use_what_is_known() -> None:
    for env in (guess(highest=31), guess(highest=9, turns=1), wordle(words=50)):
        for seed in range(40):
            shown = env.reset(seed=seed)[1]["demonstration"]
            steps = played(env, *shown)
            assert steps[-1][1:3] == (1.0, True)
            assert not any(step[2] for step in steps[:-1])


def test_marks_are_those_of_the_definition() -> None:
    """Counted the other way: a letter elsewhere is marked as often as it is left over, from the left."""
    rng = random.Random(1)
    for guessed, word in itertools.product(rng.sample(WORDS, 60), rng.sample(WORDS, 60)):
        shown = marks(guessed, word)
        assert [a == b for a, b in zip(guessed, word, strict=True)] == [mark == "+" for mark in shown]
        for letter in set(guessed):
            got = sum(mark != "-" for mark, own in zip(shown, guessed, strict=True) if own == letter)
            assert got == min(guessed.count(letter), word.count(letter))
    assert marks("level", "eagle") == "??-?-"
    assert marks("eerie", "elite") == "+--?+"


def test_a_word_gets_marks_and_scores_of_its_letters() -> None:
    env = wordle(turns=3)
    env.reset(options={"row": {"word": "crane"}})
    steps = played(env, "My guess: CRATE", "xyz", "zebra!")
    assert [step[0] for step in steps] == [
        "crate +++-+",
        "Write a word of five letters.",
        "zebra -?-?? The word was crane.",
    ]
    assert steps[2][4] == {"readable": True, "success": False, "scores": {"letters": 0.8}}


def test_unknown_words_can_be_refused() -> None:
    env = wordle(known=True)
    env.reset(options={"row": {"word": "crane"}})
    assert env.step("zzzzz")[0] == "zzzzz is not in the list of words."
    assert env.step("crane")[1:3] == (1.0, True)


def test_the_words_are_common_ones_of_five_letters_each_once() -> None:
    assert len(WORDS) > 600
    assert list(WORDS) == sorted(set(WORDS))
    assert all(len(word) == 5 and word.isascii() and word.isalpha() and word.islower() for word in WORDS)


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (guess, {"highest": 1}),
        (guess, {"lowest": -1}),
        (guess, {"turns": 21}),
        (guess, {"highest": 10**7}),
        (wordle, {"turns": 0}),
        (wordle, {"words": 1}),
    ],
)
def test_options_that_cannot_work_are_refused(spec: Any, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        spec.factory(**options)
