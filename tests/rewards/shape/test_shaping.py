"""The rewards that shape a completion: `repetition`, `overlong` and, with a judgement, `cosine`."""

import math
from typing import Any

import pytest

from grpo.plugins.errors import OptionError
from grpo.plugins.host import Host
from grpo.plugins.types import Completion
from grpo.rewards.shape.cosine import cosine
from grpo.rewards.shape.length import overlong
from grpo.rewards.shape.repetition import repetition


def sampled(count: int) -> Completion:
    return Completion("text", token_ids=tuple(range(count)))


def test_overlong_is_the_equation_of_dapo() -> None:
    expected = [0.0, 0.0, -0.05, -0.5, -0.95, -1.0, -1.0, -1.0]
    got = [overlong(sampled(n), limit=100, margin=20) for n in (1, 80, 81, 90, 99, 100, 101, 5000)]
    assert got == pytest.approx(expected)


def test_overlong_without_a_margin_is_a_step() -> None:
    assert [overlong(sampled(n), limit=10, margin=0) for n in (10, 11)] == [0.0, -1.0]


def test_overlong_counts_what_it_is_told_to() -> None:
    assert overlong("one two three", limit=4, margin=2, unit="words") == -0.5
    assert overlong("abc", limit=4, margin=2, unit="characters") == -0.5
    assert overlong("abc") is None
    assert overlong(Completion("from a file")) is None
    assert overlong(Completion("")) == 0.0


@pytest.mark.parametrize("wrong", [{"limit": 1, "margin": 2}, {"margin": -1}])
def test_overlong_refuses_bounds_out_of_order(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="0 <= margin <= limit"):
        Host.discover().reward({"name": "overlong", "options": wrong})


def test_repetition_counts_runs_that_come_again() -> None:
    assert repetition("a b c a b c", size=3) == pytest.approx(-0.25)
    assert repetition("A b a B", size=2) == pytest.approx(-1 / 3)
    assert repetition("a b c d") == 0.0
    assert math.copysign(1.0, repetition("a b c d")) == 1.0
    assert repetition("a b") == 0.0


def test_repetition_of_tokens_needs_the_tokens() -> None:
    assert repetition(Completion("x", token_ids=(5, 5, 5, 5, 5)), size=2, unit="tokens") == pytest.approx(-0.75)
    assert repetition(Completion("x"), unit="tokens") is None
    assert repetition("x", unit="tokens") is None


@pytest.mark.parametrize("wrong", [{"size": 0}, {"max_penalty": 0.5}, {"max_penalty": -2.0}])
def test_repetition_refuses_options_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="cannot be used"):
        Host.discover().reward({"name": "repetition", "options": wrong})


RIGHT, WRONG = "<answer>72</answer>", "<answer>71</answer>"


def test_cosine_pays_short_right_answers_most_and_forgives_long_wrong_ones() -> None:
    lengths = (1, 50, 100, 150, 200, 300)
    right = [cosine(RIGHT + " and" * (n - 1), "72", limit=200) for n in lengths]
    wrong = [cosine(WRONG + " and" * (n - 1), "72", limit=200) for n in lengths]
    assert right == pytest.approx([0.75 + 0.25 * math.cos(math.pi * min(n, 200) / 200) for n in lengths])
    assert wrong == pytest.approx([-0.75 - 0.25 * math.cos(math.pi * min(n, 200) / 200) for n in lengths])
    assert right == sorted(right, reverse=True)
    assert wrong == sorted(wrong)
    assert max(wrong) < min(right)


def test_cosine_takes_the_four_scores_and_one_for_too_long() -> None:
    options: dict[str, Any] = {
        "right_short": 0.2,
        "right_long": 0.1,
        "wrong_short": -0.4,
        "wrong_long": 0.0,
        "limit": 100,
    }
    assert cosine(RIGHT + " and" * 49, "72", **options) == pytest.approx(0.15)
    assert cosine(WRONG + " and" * 49, "72", **options) == pytest.approx(-0.2)
    assert cosine(RIGHT + " and" * 100, "72", over=-1.0, **options) == -1.0
    assert cosine(RIGHT + " and" * 99, "72", over=-1.0, **options) == pytest.approx(0.1)


def test_cosine_abstains_where_it_cannot_know() -> None:
    assert cosine(RIGHT, "") is None
    assert cosine(RIGHT, "72", unit="tokens") is None
    assert cosine(Completion(RIGHT, token_ids=(1,) * 50), "72", unit="tokens", limit=100) == pytest.approx(0.75)


def test_the_published_cosines_differ_beyond_the_limit_and_on_unreadable_golds() -> None:
    text = "\\boxed{72}" + "." * 140
    published: dict[str, Any] = {"unit": "characters", "limit": 100}
    assert cosine(text, "$72$", variant="trl.get_cosine_scaled_reward", **published) == pytest.approx(0.5)
    assert cosine(text, "$72$", variant="open_r1.get_cosine_scaled_reward", **published) == pytest.approx(0.75)
    assert cosine(text, "seventy", variant="trl.get_cosine_scaled_reward", **published) is None
    assert cosine(text, "seventy", variant="open_r1.get_cosine_scaled_reward", **published) == 1.0


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"right_short": 1.5}, {"over": -2.0}])
def test_cosine_refuses_options_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="cannot be used"):
        Host.discover().reward({"name": "cosine", "options": wrong})


@pytest.mark.parametrize(
    "spec",
    [
        "overlong:limit=1",
        "repetition:size=0",
        "cosine:wrong_short=-2",
        "countdown:format_score=2",
        "knights_and_knaves:format_score=-1",
    ],
)
def test_options_out_of_range_are_refused_when_they_are_bound(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    with pytest.raises(OptionError):
        Host.discover().reward(spec)
