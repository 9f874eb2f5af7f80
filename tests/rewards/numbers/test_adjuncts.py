"""What a sentence says besides its value: when, what for and out of what is no second answer, and no first one."""

import pytest
from patience import little_work

from grpo.rewards.gsm8k.verifier import gsm8k
from grpo.rewards.math.verifier import math
from grpo.rewards.numbers.adjuncts import main_clause

SENTENCES = [
    ("He will be 28 years old in 4 years.", "28", "4"),
    ("Ann was 45 in 1998.", "45", "1998"),
    ("So, it will take him 7 days to read the 210-page book.", "7", "210"),
    ("She needs **12** more stickers to fill her 60-sticker album.", "12", "60"),
    ("It would take 2 more weeks to have the $500.", "2", "500"),
    ("She'd need 21 tiles to cover a 3 ft by 7 ft floor.", "21", "7"),
    ("The bus makes 3 trips in 6 hours.", "3", "6"),
    ("He earns $120 over the 5 weeks.", "120", "5"),
    ("Each person will get 4 slices, with 2 slices left over.", "4", "2"),
    ("She can buy 7 pens at $3 each.", "7", "3"),
    ("He has 5 more marbles than Tom, who has 12.", "5", "12"),
    ("The price is now $80, down from $100.", "80", "100"),
    ("He finished 40 problems on day 3.", "40", "3"),
    ("The answer is 72 (48 + 24).", "72", "24"),
    ("So she has 17 left (20 - 3 = 17).", "17", "20"),
    ("The largest such prime is 17, and 17^2 = 289.", "17", "289"),
    ("The least value is 6, attained at x = 2.", "6", "2"),
    ("She needs 5 boxes of 12 eggs.", "5", "12"),
    ("There are 35 purple flowers out of 70 in the garden.", "35", "70"),
    ("The recipe calls for 8 cups of flour for 24 muffins.", "8", "24"),
    ("It will take Jim 2 hours to mow a 10,000-square-foot lawn.", "2", "10000"),
    ("John drives 45 miles per hour for 3 hours to reach home.", "45", "3"),
    ("Kim buys 10 pounds of apples for $25.", "10", "25"),
    ("The ball falls 19.6 meters in 2 seconds.", "19.6", "2"),
    ("Therefore, Jen has 13 fish (4 goldfish + 9 guppies).", "13", "9"),
    ("The bakery sold 120 loaves on Saturday, 30 more than on Friday.", "120", "30"),
    ("Therefore, 7 buses are needed for 300 students.", "7", "300"),
    ("There are 25 primes less than 100.", "25", "100"),
    ("The probability is 0.1, or 10%.", "0.1", "0.2"),
    ("So they will have 22 days left until the 31st.", "22", "31"),
]
UNCHANGED = [
    "The probability is 3 red balls out of 8.",
    "Since 2 * 3 = 6, it is 6.",
    "In 4 years he will be 28.",
    "It grows from 5 to 10 in total.",
    "It is a 5-minute walk.",
    "72 (48 + 25)",
    "5 boxes of 52 pencils hold 260 pencils.",
    "She has 12 apples and 3 pears, so 15 fruits.",
    "It takes 3 minutes for each of the 4 pages, so 12 minutes.",
]


@pytest.mark.parametrize(("sentence", "value", "other"), SENTENCES)
def test_the_value_of_the_main_clause_counts_and_no_other(sentence: str, value: str, other: str) -> None:
    for verifier in (math, gsm8k):
        assert verifier(sentence, value).ok is True
        assert verifier(sentence, other).ok is False
        assert verifier(f"Step 1: 3 + 4 = 7.\n\n{sentence}", value).ok is True


@pytest.mark.parametrize("sentence", UNCHANGED)
def test_a_sentence_without_adjuncts_stays(sentence: str) -> None:
    assert main_clause(sentence) == sentence


def test_places_stay_what_they_were() -> None:
    for sentence, _value, _other in SENTENCES:
        assert len(main_clause(sentence)) == len(sentence)


def test_adjuncts_are_read_in_bounded_time() -> None:
    pieces = [
        "needs 5 to ",
        "1 more ",
        "(1 + 1) ",
        "5 in 4 years ",
        "1-page ",
        "72 (48 + ",
        "than 5 each ",
        "1 a b c d ",
    ]
    for piece in pieces:
        with little_work(piece):
            main_clause(piece * 100_000)
