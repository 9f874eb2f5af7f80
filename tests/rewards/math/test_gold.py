"""A gold in the readings that the verifier needs."""

from fractions import Fraction

import pytest

from grpo.rewards.math.gold import read_gold
from grpo.rewards.math.number import same_digits


@pytest.mark.parametrize("answer", ["72", "-72", "72.50", "007", 72, -3, 2.5, "6*12\n#### 72"])
def test_digits_are_read_as_every_other_gold_is(answer: float | str) -> None:
    quick, slow = read_gold(answer), read_gold(f"${str(answer).rpartition('####')[2].strip()}$")
    assert (quick.number.value, quick.number.factor) == (slow.number.value, slow.number.factor)
    assert (quick.plain, quick.label, quick.letter, quick.words, quick.values) == (slow.plain, "", None, None, None)
    assert quick.number.text == quick.core == quick.text


@pytest.mark.parametrize("answer", ["", "  ", "#### ", None, True, ["72"]])
def test_what_is_no_gold_is_none(answer: bool | list[str] | str | None) -> None:
    assert read_gold(answer) is None
    assert read_gold(10**5000) is None


def test_numbers_and_texts_that_are_equal_are_read_apart() -> None:
    assert read_gold(1).text == "1"
    assert read_gold(1.0).text == "1.0"


@pytest.mark.parametrize(
    ("content", "core", "right"),
    [
        ("72", "72", True),
        ("72.0", "72", True),
        ("71", "72", False),
        ("0.33333333", "0.3333333", True),
        ("1" + "0" * 40, "72", None),
        ("72 clips", "72", None),
        ("72", "$72", None),
    ],
)
def test_digits_are_compared_with_digits_alone(content: str, core: str, right: bool | None) -> None:
    number = read_gold(core).number
    assert same_digits(content, core, number, 6)[0] is right
    assert number.value in (Fraction(72), Fraction("0.3333333"))
