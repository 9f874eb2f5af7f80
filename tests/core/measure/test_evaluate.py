"""Held-out figures: intervals against published values, pass@k against counting, and what is left out."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from grpo.core.measure.evaluate import evaluation_of
from grpo.core.scoring.outcome import Judgement, Outcome
from grpo.core.text.stats import Estimate, mean_of, proportion, share_of
from grpo.plugins.types import Completion, Verdict


def completions(count: int) -> list[Completion]:
    return [Completion(text=str(number)) for number in range(count)]


def judging(right: Sequence[bool | str | None]) -> list[Judgement]:
    return [
        Judgement("failure", None, "it broke") if isinstance(ok, str) else Judgement("verdict", Verdict(ok))
        for ok in right
    ]


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_of_a_proportion_is_wilsons(right: int, count: int, low: float, high: float) -> None:
    found = proportion([True] * right + [False] * (count - right))
    assert found.mean == pytest.approx(right / count)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_an_interval_holds_its_mean_whatever_rounds() -> None:
    found = [proportion([one] * count) for count in range(1, 301) for one in (True, False)]
    assert all(each.low <= each.mean <= each.high for each in found)


def test_an_undecided_or_failed_judgement_is_no_wrong_answer() -> None:
    found = proportion([True, None, False, None])
    assert (found.mean, found.count, found.left_out) == (0.5, 2, 2)
    nothing = proportion([None, None])
    assert math.isnan(nothing.mean)
    assert (nothing.count, nothing.left_out) == (0, 2)


def test_a_mean_has_the_normal_interval() -> None:
    found = mean_of([1.0, 2.0, 3.0, 4.0, None])
    half = 1.959964 * math.sqrt((5 / 3) / 4)
    assert (found.mean, found.count, found.left_out) == (2.5, 4, 1)
    assert (found.low, found.high) == (pytest.approx(2.5 - half), pytest.approx(2.5 + half))
    assert math.isnan(mean_of([None]).mean)


def test_pass_at_k_is_the_share_of_draws_with_a_right_answer() -> None:
    right = [True, False, False, True, False, False, False, False, True, True, True, True]
    found = evaluation_of(completions(12), 4, range(3), lambda _: judging(right), None)
    for k in (1, 2, 4):
        shares = [
            sum(any(draw) for draw in itertools.combinations(right[i : i + 4], k)) / math.comb(4, k) for i in (0, 4, 8)
        ]
        assert found.pass_at_k[k].mean == pytest.approx(sum(shares) / 3)
        assert found.pass_at_k[k].low <= found.pass_at_k[k].mean <= found.pass_at_k[k].high
    assert sorted(found.pass_at_k) == [1, 2, 4]


def test_an_episode_with_too_few_decided_samples_is_left_out_of_pass_at_k() -> None:
    found = evaluation_of(completions(4), 2, range(2), lambda _: judging([True, "failure", True, False]), None)
    assert (found.pass_at_k[2].mean, found.pass_at_k[2].left_out) == (1.0, 1)
    assert found.accuracy is not None
    assert (found.accuracy.mean, found.accuracy.left_out) == (pytest.approx(2 / 3), 1)


def test_samples_of_one_episode_are_not_counted_as_independent() -> None:
    # Ten episodes, each right always or never: eight samples of each tell no more than one.
    right = [episode % 2 == 0 for episode in range(10) for _ in range(8)]
    found = evaluation_of(completions(80), 8, range(10), lambda _: judging(right), None).accuracy
    alone = proportion([episode % 2 == 0 for episode in range(10)])
    assert found is not None
    assert found.mean == 0.5
    assert found.high - found.low == pytest.approx(alone.high - alone.low, rel=0.15)


def test_rewards_leave_out_abstentions_and_failures() -> None:
    outcomes = [Outcome("score", 1.0), Outcome("abstain"), Outcome("score", 0.0), Outcome("failure", None, "it broke")]
    found = evaluation_of(completions(4), 1, range(4), None, lambda _: {"near": outcomes})
    assert found.accuracy is None
    assert found.pass_at_k == {}
    assert (found.rewards["near"].mean, found.rewards["near"].count, found.rewards["near"].left_out) == (0.5, 2, 2)


def test_equal_shares_keep_an_interval() -> None:
    solved = evaluation_of(completions(40), 4, range(10), lambda _: judging([True] * 40), None)
    accuracy, passed = solved.accuracy, solved.pass_at_k[4]
    assert accuracy is not None
    assert (accuracy.mean, accuracy.high, passed.mean, passed.high) == (1.0, 1.0, 1.0, 1.0)
    assert passed.low == pytest.approx(proportion([True] * 10).low)
    assert proportion([True] * 7).low < accuracy.low < passed.low, "forty answers to ten questions"
    one = mean_of([1.0, 0.0], ["same", "same"])
    assert math.isnan(one.low), "one question tells nothing about others"


@pytest.mark.parametrize("measure", [share_of, mean_of])
def test_intervals_of_clustered_values_hold_the_truth_as_often_as_they_say(measure: Any) -> None:
    rng = random.Random(0)

    def drawn() -> list[float | None]:
        chances = [rng.betavariate(2, 1) for _ in range(60)]  # the mean chance is 2/3
        return [float(rng.random() < chance) for chance in chances for _ in range(8)]

    questions = [question for question in range(60) for _ in range(8)]
    found = [measure(drawn(), questions) for _ in range(600)]
    held = sum(one.low <= 2 / 3 <= one.high for one in found) / len(found)
    assert 0.92 <= held <= 0.98


SIZES = {
    "uneven": [12] * 7 + [1] * 116,  # as the rows of arithmetic, levels 1 and 2
    "few": [13] * 15,
    "very few": [40] * 5,
    "samples": [8] * 50,
    "different": [1] * 200,
}


@pytest.mark.parametrize("mean", [0.1, 0.57, 0.9])
@pytest.mark.parametrize("sizes", SIZES)
def test_intervals_of_greedy_answers_hold_the_truth_however_often_questions_come_again(sizes: str, mean: float) -> None:
    """Each question is right or wrong as a whole: intervals that count rows would miss the truth half of the time."""
    rng = random.Random(1)
    asked = [question for question, size in enumerate(SIZES[sizes]) for _ in range(size)]

    def drawn() -> Estimate:
        right = [rng.random() < mean for _ in SIZES[sizes]]
        return proportion([right[question] for question in asked], asked)

    found = [drawn() for _ in range(800)]
    held = sum(one.low <= mean <= one.high for one in found) / len(found)
    assert held >= 0.93
    assert {one.questions for one in found} == {len(SIZES[sizes])}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("mean", "correlation"), [(0.5, 0.1), (0.5, 0.3), (0.5, 0.7), (0.2, 0.3)])
def test_intervals_of_samples_hold_the_truth_whatever_the_correlation_within_questions(
    sizes: str, mean: float, correlation: float
) -> None:
    rng = random.Random(2)
    scale = (1 - correlation) / correlation
    asked = [question for question, size in enumerate(SIZES[sizes]) for _ in range(size)]

    def drawn() -> Estimate:
        chances = [rng.betavariate(mean * scale, (1 - mean) * scale) for _ in SIZES[sizes]]
        return proportion([rng.random() < chances[question] for question in asked], asked)

    held = sum(one.low <= mean <= one.high for one in (drawn() for _ in range(400))) / 400
    assert held >= 0.9


def test_shares_that_lie_close_together_count_no_more_than_their_number() -> None:
    close = share_of([0.9, 0.92] * 25)
    apart = share_of([1.0] * 45 + [0.0] * 5)
    assert close.high - close.low == pytest.approx(apart.high - apart.low, rel=0.05)


def test_a_question_that_comes_again_says_nothing_new() -> None:
    right = [question < 57 for question in range(100)]
    once = proportion(right)
    twice = proportion([*right, *right], [*range(100), *range(100)])
    assert (twice.mean, twice.count, twice.questions) == (once.mean, 200, 100)
    assert twice.low == pytest.approx(once.low, abs=0.003)
    assert twice.high == pytest.approx(once.high, abs=0.003)
    assert proportion(right, range(100)) == once


def test_uneven_questions_have_the_width_of_fewer() -> None:
    asked = [question for question, size in enumerate(SIZES["uneven"]) for _ in range(size)]
    found = proportion([question % 7 < 4 for question in asked], asked)
    assert found.mean == pytest.approx(0.57, abs=0.02)
    assert (found.low, found.high) == (pytest.approx(0.40, abs=0.02), pytest.approx(0.73, abs=0.02))


@pytest.mark.parametrize("size", [2, 10, 200])
def test_one_question_tells_nothing_of_others(size: int) -> None:
    found = proportion([True] * size, ["same"] * size)
    assert (found.mean, found.questions) == (1.0, 1)
    assert found.low < 0.01
