"""Numerals with a base: the same digits in the same base, and nothing else."""

import pytest

from grpo.rewards.math.notations import numeral, same_numeral


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("1011_2", ("1011", 2)),
        ("$1011_{2}$", ("1011", 2)),
        ("(1011)_2", ("1011", 2)),
        (r"204_{\text{five}}", ("204", 5)),
        (r"1011_{\text{base }2}", ("1011", 2)),
        ("2a_{16}", ("2A", 16)),
        ("204 base 5", ("204", 5)),
        ("204 (base five)", ("204", 5)),
        ("0011_2", ("11", 2)),
    ],
)
def test_a_numeral_is_its_digits_and_its_base(text: str, digits: tuple[str, int]) -> None:
    assert numeral(text) == digits


@pytest.mark.parametrize("text", ["1012_2", "x_2", "a_2", "1011", "1011_1", "1011_99", "5_x", "", "1_2_3"])
def test_anything_else_is_none(text: str) -> None:
    assert numeral(text) is None


def test_a_base_that_is_left_out_is_the_other_ones() -> None:
    assert same_numeral("1011_2", "1011") is True
    assert same_numeral("1011", "1011_2") is True
    assert same_numeral("1011_2", "1011_3") is False
    assert same_numeral("1011_2", "11") is False
    assert same_numeral("1011_2", "x") is None
    assert same_numeral("11", "11") is None
