"""Units at the end of a quantity: which differ, and how much the one is of the other."""

from fractions import Fraction

import pytest

from grpo.rewards.numbers.quantity import magnitude, unit, unit_ratio


@pytest.mark.parametrize(
    ("text", "gold", "ratio"),
    [
        ("5 cm", r"5\text{ cm}", 1),
        (r"5\,\mathrm{cm}", "5 centimetres", 1),
        ("5", "5 cm", 1),
        ("72 clips", "72 apples", 1),
        ("500 cm", "5 m", Fraction(1, 100)),
        (r"5\text{ kg}", r"5\text{ m}", 0),
        (r"5\text{ cm}^3", r"5\text{ cm}^2", 0),
        ("5 square feet", "5 sq. ft", 1),
        ("60 miles per hour", "60 mph", 1),
        (r"60\frac{\text{miles}}{\text{hour}}", "60 mph", 1),
        ("5 m/s", "5 km/h", Fraction(18, 5)),
        ("5 m s^{-1}", "5 m/s", 1),
        ("50 cents", r"\$50", Fraction(1, 100)),
        ("5 dollars", "$5", 1),
        ("5 cm", "$5$", 1),
        ("5 mL", "5 L", Fraction(1, 1000)),
        ("90 degrees", r"90^\circ", 1),
        ("25 degrees", r"25^\circ\text{C}", 1),
        (r"25^\circ\text{F}", r"25^\circ\text{C}", 0),
        ("10 inches", "10 feet", Fraction(1, 12)),
    ],
)
def test_units_compare_by_kind_and_size(text: str, gold: str, ratio: Fraction | int) -> None:
    assert unit_ratio(text, gold) == ratio


@pytest.mark.parametrize("text", ["2m", "$x$", "$5$", "5x cm", "seconds", "72 in", "10 p.m.", "3 or 4", "x" * 10_000])
def test_what_may_be_a_variable_or_a_word_is_no_unit(text: str) -> None:
    assert unit(text) is None
    assert magnitude(text) == text


def test_the_magnitude_is_what_stands_before_a_known_unit() -> None:
    assert magnitude(r"25^\circ\text{C}") == "25"
    assert magnitude("5m/s") == "5"
    assert magnitude("4\\pi\\ \\mathrm{cm}^{2}") == "4\\pi"
