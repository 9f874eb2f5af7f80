"""Numbers in words: what is one number, and what is none."""

from fractions import Fraction

import pytest

from grpo.rewards.numbers.answers import final_answer, gold_number
from grpo.rewards.numbers.words import spoken_number

READ = {
    "zero": 0,
    "Seventy-two.": 72,
    "seventy two": 72,
    "one hundred five": 105,
    "one hundred and five": 105,
    "nineteen hundred": 1900,
    "a hundred": 100,
    "two thousand three hundred": 2300,
    "one million two thousand three hundred and forty-five": 1_002_345,
    "a dozen": 12,
    "half a dozen": 6,
    "minus five": -5,
    "negative two thirds": Fraction(-2, 3),
    "one half": Fraction(1, 2),
    "three quarters": Fraction(3, 4),
    "one and a half": Fraction(3, 2),
    "three point one four": Fraction(157, 50),
}
NONE = ["", "a", "an", "third", "one two", "seven ten", "ten or eleven", "twenty eleven", "a hundred hundred"]
NONE += [
    "seventy-two apples",
    "one thousand million",
    "the two",
    "five thirds",
    "and five",
    "five and",
    "none",
    "7 and 8",
]


@pytest.mark.parametrize("text", READ)
def test_a_number_in_words_is_read(text: str) -> None:
    assert spoken_number(text) == READ[text]


@pytest.mark.parametrize("text", [*NONE, "one " * 100_000, "million " * 9])
def test_words_that_are_no_one_number_are_none(text: str) -> None:
    assert spoken_number(text) is None


def test_every_number_below_a_hundred_thousand_is_read_back() -> None:
    ones = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    ones += ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
    tens = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]

    def words(number: int) -> str:
        if number < 20:
            return ones[number]
        if number < 100:
            return f"{tens[number // 10]}{'-' if number % 10 else ''}{ones[number % 10]}"
        if number < 1000:
            return f"{ones[number // 100]} hundred {words(number % 100)}".strip()
        return f"{words(number // 1000)} thousand {words(number % 1000)}".strip()

    for number in (*range(1, 2000), *range(2000, 100_000, 997)):
        assert spoken_number(words(number)) == number


def test_a_marked_answer_and_a_gold_may_be_words() -> None:
    assert gold_number("#### seventy-two").value == 72
    assert final_answer("<answer>seventy-two</answer>").numbers[0].value == 72
    assert final_answer("So the answer is seventy-two.").numbers[0].value == 72
    assert final_answer("<answer>seventy-two or three</answer>").numbers == ()
    assert final_answer("He has seventy-two.") is None
