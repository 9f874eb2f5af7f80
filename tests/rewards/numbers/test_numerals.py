"""Numbers as people write them."""

from fractions import Fraction

import pytest

from grpo.rewards.numbers.numerals import DIGITS, distance, is_exact, numbers_in, plain_text, read_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("72", 72),
        (" 72. ", 72),
        ("0072", 72),
        ("+72", 72),
        ("\\frac{1}{-2}", Fraction(-1, 2)),
        ("-\\frac{1}{-2}", Fraction(1, 2)),
        ("\\frac{-1}{-2}", Fraction(1, 2)),
        ("-\\frac{-1}{2}", Fraction(1, 2)),
        ("\\dfrac{3}{-4}", Fraction(-3, 4)),
        ("{-1 \\over 2}", Fraction(-1, 2)),
        ("{1\\over -2}", Fraction(-1, 2)),
        ("1/-2", Fraction(-1, 2)),
        ("-1/-2", Fraction(1, 2)),
        ("1/(-2)", Fraction(-1, 2)),
        ("-72", -72),
        ("\u221272", -72),
        ("- 72", -72),
        ("-$72", -72),
        ("$-72", -72),
        ("negative 72", -72),
        ("1,080", 1080),
        ("1,00,000", 100000),
        ("1.200,50", Fraction(2401, 2)),
        ("1 200,50", Fraction(2401, 2)),
        ("1.200.000", 1200000),
        ("1'080", 1080),
        ("1\u2019080.50", Fraction(2161, 2)),
        ("1.200,50 €", Fraction(2401, 2)),
        ("2.5\\text{ million}", 2500000),
        ("1 080", 1080),
        ("1\u202f080", 1080),
        ("1{,}080", 1080),
        ("1\\,080", 1080),
        ("$1,200.00", 1200),
        ("US$5", 5),
        ("€ 5", 5),
        ("72.50", Fraction(145, 2)),
        (".5", Fraction(1, 2)),
        ("1.2e3", 1200),
        ("1.2E-3", Fraction(12, 10000)),
        ("1.2 x 10^3", 1200),
        ("1.2 \u00d7 10\u00b3", 1200),
        ("1.2 \\times 10^{3}", 1200),
        ("3/4", Fraction(3, 4)),
        ("-3/4", Fraction(-3, 4)),
        ("1 1/2", Fraction(3, 2)),
        ("-1 1/2", Fraction(-3, 2)),
        ("1\u00bd", Fraction(3, 2)),
        ("\u00be", Fraction(3, 4)),
        ("\\frac{3}{4}", Fraction(3, 4)),
        ("-\\dfrac{3}{4}", Fraction(-3, 4)),
        ("2\\frac12", Fraction(5, 2)),
        ("\\$72", 72),
        ("$72$", 72),
        ("**72**", 72),
        ("(72)", 72),
        ("\uff17\uff12", 72),
        ("\u0667\u0662", 72),
    ],
)
def test_one_number_in_many_spellings(text: str, value: Fraction | int) -> None:
    number = read_number(text)
    assert number is not None
    assert number.value * number.factor == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "Paris",
            "seventy-two",
            "nan",
            "inf",
            "-",
            "--",
            ".",
            "$",
            "1/0",
            "7_2",
            "1.2.3",
            "3rd",
            "x72",
            "2x",
        ),
        *("72\u00b2", "5^2", "\u221a72", "\u2167", "71 72", "72 or 73", "1,2,3", "72 apples", "x+1"),
    ],
)
def test_what_is_not_one_number_alone_is_none(text: str) -> None:
    assert read_number(text) is None


def test_words_may_follow_where_units_are_allowed() -> None:
    assert read_number("72 apples per day.", units=True).value == 72
    assert read_number("72 apples", units=False) is None
    assert read_number("72 apples and 3", units=True) is None
    assert read_number("2x", units=True) is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("\u4e00\u5171\u6709858\u9897", [858]),
        ("\u7b54\u6848\u662f-72\u3002", [-72]),
        ("5, 200, 50", [5, 200, 50]),
        ("1.5,2.5", [Fraction(3, 2), Fraction(5, 2)]),
        ("x1.200,50", [50]),
    ],
)
def test_numbers_stand_beside_other_scripts_and_commas_that_part_a_list_stay(text: str, values: list[Fraction]) -> None:
    assert [number.value for number in numbers_in(plain_text(text))] == values


def test_units_may_have_powers_degrees_and_signs() -> None:
    for text in ("2\\text{ cm}^2", "2 cm\u00b2", "2\u00b0", "2 €", "2\\mathrm{cm}^{3}"):
        assert read_number(text, units=True).value == 2, text


WRITTEN = ["1,200", "48", "24", "5%", "$3.50", "2", "-7", "1/2", "2 million"]


def test_numbers_are_found_in_a_sentence_from_left_to_right() -> None:
    text = plain_text("On the 3rd day 1,200 of 48-24 (or 5%) went for $3.50, <<1+1=2>>2 at -7, 5^2, 1/2 and 2 million.")
    assert [n.text.strip() for n in numbers_in(text)] == WRITTEN


@pytest.mark.parametrize(
    ("guess", "gold", "expected"),
    [
        ("72%", "72", 0),
        ("50%", "0.5", 0),
        ("0.5", "50%", 0),
        ("0.5%", "0.5", Fraction(495, 1000)),
        ("12.5%", "12.5", 0),
        ("1250%", "12.5", 0),
        ("72%", "0.72%", Fraction(7128, 100)),
        ("100%", "1", 99),
        ("60 million", "60", 0),
        ("60 million", "60,000,000", 0),
        ("2k", "2000", 0),
        ("-72", "72", 144),
    ],
)
def test_distance_reads_percent_signs_and_magnitudes(guess: str, gold: str, expected: Fraction | int) -> None:
    assert distance(read_number(guess), read_number(gold)) == expected


def test_digits_beyond_the_limit_are_clamped_and_never_equal_a_shorter_number() -> None:
    huge = next(numbers_in("1e999999999"))
    assert huge.value >= 10**DIGITS
    assert not is_exact(huge)
    tiny = next(numbers_in("1e-999999999"))
    assert 0 < tiny.value < Fraction(1, 10**DIGITS)
    long = next(numbers_in("72." + "0" * 1000 + "1"))
    assert 0 < long.value - 72 < Fraction(1, 10 ** (DIGITS - 1))
    assert next(numbers_in("72." + "0" * 100_000)).value == 72
    assert next(numbers_in("0" * 100_000 + "72")).value == 72
