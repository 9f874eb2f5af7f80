"""The table that ends a scoring command: its figures are right, and nothing scored is no zero."""

from __future__ import annotations

import random
import statistics

from grpo.core.scoring.outcome import Outcome
from grpo.core.scoring.tally import ScoreTally
from grpo.core.text.printable import aligned


def scored(score: float) -> Outcome:
    return Outcome("score", score)


def tallied(*outcomes: Outcome) -> ScoreTally:
    tally = ScoreTally()
    for outcome in outcomes:
        tally.add([outcome])
    return tally


ABSTAINED = Outcome("abstain", None, None, 0.0)
FAILED = Outcome("failure", None, "it raised", 0.0)


def test_mean_and_deviation_are_those_of_the_scores_alone() -> None:
    scores = [random.Random(0).random() for _ in range(500)]
    tally = ScoreTally()
    tally.add([scored(score) for score in scores[:200]])
    tally.add([ABSTAINED, FAILED, FAILED])
    tally.add([scored(score) for score in scores[200:]])
    mean, deviation = f"{statistics.mean(scores):.4f}", f"{statistics.stdev(scores):.4f}"
    assert tally.cells() == ("503", mean, deviation, "1", "2")


def test_large_scores_are_shown_with_an_exponent() -> None:
    assert tallied(scored(1e300), scored(1e300)).cells()[1:3] == ("1e+300", "0.0000")


def test_a_small_deviation_far_from_zero_does_not_cancel() -> None:
    tally = tallied(*(scored(1e9 + offset) for offset in (0.0, 1.0, 2.0)))
    assert tally.cells()[2] == "1.0000"


def test_without_scores_there_is_no_mean_and_with_one_no_deviation() -> None:
    assert tallied(ABSTAINED, FAILED).cells() == ("2", "-", "-", "1", "1")
    assert tallied(scored(0.5)).cells() == ("1", "0.5000", "-", "0", "0")


def test_a_reward_is_lost_when_it_failed_and_no_row_has_a_score() -> None:
    assert tallied(FAILED, FAILED).lost
    assert tallied(FAILED, ABSTAINED).lost
    assert not tallied(FAILED, scored(0.0)).lost
    assert not tallied(ABSTAINED).lost
    assert not tallied().lost


def test_names_stand_to_the_left_and_figures_to_the_right() -> None:
    rows = [["reward", "rows", "mean"], ["near", "7", "0.5000"], ["a.long.name", "12345", "-"]]
    lines = ["reward        rows    mean", "near             7  0.5000", "a.long.name  12345       -"]
    assert aligned(rows, right=True) == lines
