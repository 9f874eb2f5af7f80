"""Parses numbers as people write them into exact `Number` values; never a float, never an exception.

Linear in the text; digits beyond `DIGITS` places are rounded away from equality, so that a number of a million digits
costs no more than reading it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import partial

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.numbers.chinese import FULL_WIDTH

DIGITS = 400
"""Places kept before the decimal point, and after it; what lies beyond is clamped."""

_PERCENT = Fraction(1, 100)
_MAGNITUDES = {"k": 10**3, "dozen": 12, "hundred": 100, "thousand": 10**3}
_MAGNITUDES |= {"million": 10**6, "billion": 10**9, "trillion": 10**12}
_CEILING = Fraction(10**DIGITS)

_CHARACTERS: dict[int, str | None] = {ord(c): "-" for c in "\u2212\u2010\u2011\ufe63\uff0d"}
_CHARACTERS |= FULL_WIDTH
_CHARACTERS |= {ord(c): "/" for c in "\u2044\u2215"}
_CHARACTERS |= {
    c: " " + unicodedata.normalize("NFKC", chr(c)).replace("\u2044", "/")
    for c in (*range(0xBC, 0xBF), *range(0x2150, 0x215F))
}
INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))
"""For `str.translate`: characters without a width, left out; those that turn the order of others stay."""
_CHARACTERS |= INVISIBLE
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_TEN_TO = lazy_pattern(r"(?<!\d)10([⁻⁺]?[⁰¹²³⁴-⁹]++)")
_CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
_LETTER_BEFORE = rf"(?<![^\W{_CJK}])"
"""No letter, digit or underscore may stand before; Chinese, Japanese and Korean put no blank before a number."""

_AND_A_HALF = lazy_pattern(r"(?<![\d./])(\d{1,9})\s+and\s+a\s+(half|quarter)\b", re.IGNORECASE)
_CENTS = lazy_pattern(r"[$]?(?<![\d.,])(\d[\d,]*)(?:\s+dollars?)?\s+and\s+(\d{1,2})\s+cents?\b", re.IGNORECASE)
_NARROW_SPACE = lazy_pattern(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_APOSTROPHE = lazy_pattern(r"(?<=\d)['\u2019](?=\d{3}(?!\d))")
_DECIMAL_COMMA = lazy_pattern(
    rf"{_LETTER_BEFORE}(?<!\d[.,\s])(\d{{1,3}}(?:\.\d{{3}})++|\d{{1,3}}(?:[ \u00a0\u2009\u202f]\d{{3}})++)"
    r",(\d{1,2})(?![.,]?\d)"
)
_DOTTED = lazy_pattern(rf"{_LETTER_BEFORE}(?<!\d[.,])\d{{1,3}}(?:\.\d{{3}}){{2,}}+(?![.,]?\d)")
_EMPHASIS = lazy_pattern(r"(?<!\w)__(?=[-+$\d])|(?<=[\d%.])__(?!\w)")
_BOLD_TAG = lazy_pattern(r"</?(?:b|strong)>")
_BOLD_NUMBER = lazy_pattern(r"\\(?:text|math)bf\s?\{([^{}*]*\d[^{}*]*)\}")
_ANNOTATION = lazy_pattern(r"<<[^<>]*+>>")
_LATEX_GROUPING = lazy_pattern(r"(?<=\d)(?:\\[,;:! ]|,\\!)(?=\d{3}(?!\d))")
_LATEX_BLANK = lazy_pattern(r"(?<=[\d}])~")
_SIGNED = r"\s?([-+]?[\d.,]{1,60})\s?"
_LATEX_FRACTION = lazy_pattern(
    rf"([-+]?)\s?(?:\\[dtc]?frac(?:\s?\{{{_SIGNED}\}}\s?\{{{_SIGNED}\}}|\s?(\d)\s?(\d))|\{{{_SIGNED}\\over(?![a-zA-Z]){_SIGNED}\}})"
)
_DIVISOR_IN_BRACKETS = lazy_pattern(r"(?<=\d)\s?/\s?\((-?\d[\d.]{0,60})\)")
_NEGATIVE_DIVISOR = lazy_pattern(r"([-+]?)(?<![\d.])(\d[\d.,]{0,60})\s?/\s?-(\d[\d.]{0,60})")
_DEGREES = lazy_pattern(r"\s?\^\s?\{?\s?\\circ(?![a-zA-Z])\s?\}?|\s?\\degrees?(?![a-zA-Z])")
_LATEX_WORDS = lazy_pattern(r"\\(?:text|mathrm|mathbf|textbf|mbox)\s?\{([^{}]*+)\}(?:\^\{?[23]\}?(?!\d))?")
_LATEX_MARKS = lazy_pattern(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[()\[\],;:! \\]")
_PLAIN = r"\s?([-+]?\d[\d,]{0,60}(?:\.\d{1,60})?)\s?"
_LEFT, _RIGHT = r"(?:\\left\s?)?", r"(?:\\right\s?)?"
_ABSOLUTE = lazy_pattern(
    rf"(?<![\w|])\|([-+]?\d[\d,]{{0,60}}(?:\.\d{{1,60}})?)\|(?![\w|-])|\\left\s?\|{_PLAIN}\\right\s?\|"
    rf"|{_LEFT}\\[lr]?vert{_PLAIN}{_RIGHT}\\[lr]?vert(?![a-z])|\babs\({_PLAIN}\)"
)
_FLOOR = lazy_pattern(rf"(?:{_LEFT}\\lfloor|\u230a|\bfloor\(){_PLAIN}(?:{_RIGHT}\\rfloor|\u230b|\))")
_CEILED = lazy_pattern(rf"(?:{_LEFT}\\lceil|\u2308|\bceil(?:ing)?\(){_PLAIN}(?:{_RIGHT}\\rceil|\u2309|\))")
_OPPOSITE = lazy_pattern(rf"(?<![\w)\]}}%])(?<![\w)\]}}%] )-\s?\({_PLAIN}\)")

_TOKEN = lazy_pattern(
    rf"""
    (?: {_LETTER_BEFORE} (?<![)\]}}%]) (?P<sign>[-+]) | {_LETTER_BEFORE} (?P<negative>negative) [ ] )?
    (?: (?:[A-Z]{{2}})? [$€£¥₹] [ ]? (?P<inner>-)? )?
    {_LETTER_BEFORE} (?<!\d\.) (?<!\^) (?<!\^\{{) (?<!√) (?<!sqrt\{{)
    (?>
        (?:
            (?P<whole> (?> \d{{1,3}} (?:,\d{{3}}(?!\d))++ | \d{{1,2}} (?:,\d{{2}}(?!\d))++ ,\d{{3}}(?!\d) | \d++ ) )
            (?: \.(?P<part>\d++) )?
          | \.(?P<only>\d++)
        )
        (?: [eE](?P<e>[-+]?\d++) | [ ]?(?:[x*\u00d7\u00b7]|\\times|\\cdot)[ ]?10\^\{{?(?P<ten>[-+]?\d++)\}}? )?
        (?: [ ]{{1,2}}(?P<upper>\d++)/(?P<lower>\d++)
          | [ ]?/[ ]?(?P<under>\d{{1,3}}(?:,\d{{3}}(?!\d))++|\d++)(?:\.(?P<under_part>\d++))?(?![ ]?/[ ]?\d) )?
        (?: [ ]{{0,3}}(?P<percent>%|percent\b|per[ ]cent\b)
          | [ ]{{1,3}}(?P<magnitude>dozen|hundred|thousand|million|billion|trillion)s?\b | (?P<kilo>k)\b )?
    )
    (?! [ ]?\^ | \.\d | [_⁰¹²³⁴-⁹] | \d | (?:st|nd|rd|th)\b )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_LOOSE_SIGN = lazy_pattern(r"\A([-+\u2013])\s*+(?=[$€£¥₹]?\s?[\d.])")
_SPACED_GROUPS = lazy_pattern(r"[-+]?[$€£¥₹]?\d{1,3}(?: \d{3})++\.?")
_UNITS = lazy_pattern(r"(?:\s[^\W\d_]*+(?:[\s/.°²³-][^\W\d_]*+)*+)?[\s.*_)\]}$\"'€£¥₹¢°]*+")
_BARE = lazy_pattern(r"[\s.*_)\]}$\"'€£¥₹]*+")


@dataclass(frozen=True, slots=True)
class Number:
    """A number found in a text."""

    value: Fraction  # as written, without what follows it
    factor: Fraction  # what may follow: 1/100 for a percent sign, 10**6 for "million", 1000 for "k" and so on; else 1
    text: str  # the characters it was read from, after `plain_text`
    start: int  # where they begin in the text that was searched
    end: int  # where they end; further on where the same quantity is said twice, of which `factor` is the other reading

    @property
    def restated(self) -> bool:
        """True where more was read than the number alone: "72 hours, or 3 days"."""
        return self.end - self.start > len(self.text)


def plain_text(text: str) -> str:
    """Returns the text with typographic and LaTeX spellings of numbers replaced by ASCII ones.

    Minus signs, full-width punctuation, vulgar fractions, narrow spaces and apostrophes between thousands, what can be
    nothing but a decimal comma (1.200,50) or dots between thousands (1.200.000), `\\frac`, `\\$`, `\\%`, `\\text{}`,
    `{,}`, CRLF, other forms of bold than `**`, and GSM8K's `<<...>>` annotations, which are dropped.
    """
    text = text.replace("\r\n", "\n")
    if " and a " in text:
        text = _AND_A_HALF.sub(lambda m: f"{m[1]} {'1/2' if m[2].lower() == 'half' else '1/4'}", text)
    if "cent" in text:
        text = _CENTS.sub(_dollars, text)
    if "," in text:
        text = _DECIMAL_COMMA.sub(_decimal_point, text)
    text = _DOTTED.sub(lambda m: m[0].replace(".", ""), text)
    if not text.isascii():
        text = _NARROW_SPACE.sub(",", text)
        text = _TEN_TO.sub(lambda m: "10^" + m[1].translate(_SUPERSCRIPTS), text)
        text = text.translate(_CHARACTERS)
    if "__" in text:
        text = _EMPHASIS.sub("**", text)
    if "<b>" in text or "<strong>" in text:
        text = _BOLD_TAG.sub("**", text)
    if "<<" in text:
        text = _ANNOTATION.sub("", text)
    text = _LATEX_BLANK.sub(" ", text.replace("{,}", ","))
    if _APOSTROPHE.search(text):
        text = _APOSTROPHE.sub(",", text)
    for mark, form, value in _EVALUATED:
        if mark in text:
            text = form.sub(partial(_evaluated, value), text)
    if "\\" in text:
        text = text.replace("\\$", "$").replace("\\%", "%")
        text = _LATEX_GROUPING.sub(",", text)
        text = _DEGREES.sub("\u00b0", text)
        text = _LATEX_FRACTION.sub(_plain_fraction, text)
        text = _BOLD_NUMBER.sub(r" **\1** ", text)
        text = _LATEX_WORDS.sub(r" \1 ", text)
        text = _LATEX_MARKS.sub(" ", text)
    if "/" in text:
        text = _DIVISOR_IN_BRACKETS.sub(r"/\1", text)
        text = _NEGATIVE_DIVISOR.sub(lambda m: f"{_opposite(m[1])}{m[2]}/{m[3]}", text)
    return text


def _evaluated(value: Callable[[Decimal], Decimal], match: re.Match[str]) -> str:
    """Replaces a number between bars, floor or ceiling brackets, or behind a minus and a bracket by its value."""
    number = Decimal(next(group for group in match.groups() if group is not None).replace(",", ""))
    return f" {value(number):f} "


_EVALUATED: tuple[tuple[str, re.Pattern[str], Callable[[Decimal], Decimal]], ...] = (
    ("|", _ABSOLUTE, Decimal.copy_abs),
    ("vert", _ABSOLUTE, Decimal.copy_abs),
    ("abs(", _ABSOLUTE, Decimal.copy_abs),
    ("floor", _FLOOR, partial(Decimal.to_integral_value, rounding=ROUND_FLOOR)),
    ("\u230a", _FLOOR, partial(Decimal.to_integral_value, rounding=ROUND_FLOOR)),
    ("ceil", _CEILED, partial(Decimal.to_integral_value, rounding=ROUND_CEILING)),
    ("\u2308", _CEILED, partial(Decimal.to_integral_value, rounding=ROUND_CEILING)),
    ("(", _OPPOSITE, Decimal.copy_negate),
)
"""What a text must hold, the form that may then be found, and what it makes of the number in it."""


def _opposite(sign: str) -> str:
    """The sign when a minus stands below the fraction bar."""
    return "+" if sign == "-" else "-"


def _dollars(match: re.Match[str]) -> str:
    """Dollars and cents become one number; other things stay."""
    if "$" not in match[0] and "dollar" not in match[0].lower():
        return match[0]
    return f"${match[1]}.{int(match[2]):02d}"


def _decimal_point(match: re.Match[str]) -> str:
    return "".join(filter(str.isdigit, match[1])) + "." + match[2]


def _plain_fraction(match: re.Match[str]) -> str:
    sign = match[1]
    upper, lower = (part for part in match.groups()[1:] if part is not None)
    mixed = not sign and match.start() > 0 and match.string[match.start() - 1].isdigit()
    if lower.startswith("-"):
        sign = _opposite(sign)
    if upper.startswith("-") and sign:
        sign = _opposite(sign)
        upper = upper[1:]
    return f"{' ' if mixed else ''}{sign}{upper}/{lower.lstrip('-+')}"


def numbers_in(text: str) -> Iterator[Number]:
    """Yields the numbers of a text that went through `plain_text`, from left to right.

    Known forms: sign, currency, thousands (1,080 and 1,00,000), decimals, 1.2e3, 1.2 x 10^3, 3/4, 1 1/2, percent,
    "3 million". Ordinals (3rd), powers (5^2), roots and parts of words are not numbers; nor is a division by zero.
    """
    for match in _TOKEN.finditer(text):
        value = _value(match)
        if value is not None:
            yield Number(value, _factor(match), match[0], match.start(), match.end())


def _factor(match: re.Match[str]) -> Fraction:
    if match["percent"]:
        return _PERCENT
    word = match["magnitude"] or match["kilo"]
    return Fraction(_MAGNITUDES[word.lower()] if word else 1)


def read_number(text: str, *, units: bool = False) -> Number | None:
    """Reads a text that is one number and nothing else (" $1,200.00 "), or None; `units`: words may follow ("72
    apples").

    A sign may stand apart ("- 7") and spaces may part thousands.
    """
    text = text.strip()
    if len(text) > 4 * DIGITS:
        return None
    text = _LOOSE_SIGN.sub(lambda m: "+" if m[1] == "+" else "-", plain_text(text))
    if _SPACED_GROUPS.fullmatch(text):
        text = text.replace(" ", "")
    number = next(numbers_in(text), None)
    if number is None or any(c.isalnum() or c in "-+." for c in text[: number.start]):
        return None
    return number if (_UNITS if units else _BARE).fullmatch(text, number.end) else None


def is_exact(number: Number) -> bool:
    """Returns whether the number is within `DIGITS` places, so that nothing of it was clamped."""
    return abs(number.value) < _CEILING and number.value.denominator <= 10**DIGITS


def distance(guess: Number, gold: Number) -> Fraction:
    """Returns |guess - gold|, exact, for the closest allowed reading of what follows the numbers.

    Beside a plain number v, a percent sign is a mere unit when v is a whole number (72% is 72), means hundredths when
    |v| < 1 (50% is 0.5), and may be either otherwise. A magnitude word may be a unit or a factor, since gold answers
    leave it out where the question names it ("60 million" is 60 or 60,000,000). Two percentages compare as written.
    """
    if guess.factor == gold.factor == 1:
        return abs(guess.value - gold.value)
    return min(abs(x - y) for x in _readings(guess, gold) for y in _readings(gold, guess))


def _readings(number: Number, other: Number) -> tuple[Fraction, ...]:
    multiplied = number.value * number.factor
    if number.factor == _PERCENT:
        if other.factor == _PERCENT or other.value.denominator == 1:
            return (number.value,)
        return (multiplied,) if abs(other.value) < 1 else (number.value, multiplied)
    return (multiplied,) if other.factor > 1 else (number.value, multiplied)


def _value(match: re.Match[str]) -> Fraction | None:
    if match["only"]:
        value = _decimal("", match["only"], match["e"] or match["ten"])
    else:
        value = _decimal(match["whole"], match["part"] or "", match["e"] or match["ten"])
    if match["lower"]:
        lower = _decimal(match["lower"], "", None)
        if not lower:
            return None
        value += _decimal(match["upper"], "", None) / lower
    elif match["under"]:
        under = _decimal(match["under"], match["under_part"] or "", None)
        if not under:
            return None
        value /= under
    minus = (match["sign"] == "-") != bool(match["inner"])
    return -value if minus or match["negative"] else value


def _decimal(whole: str, part: str, exponent: str | None) -> Fraction:
    """whole.part x 10^exponent, exact within `DIGITS` places and clamped beyond."""
    if not (part or exponent) and len(whole) < DIGITS and whole.isdecimal():
        return Fraction(int(whole))
    whole = whole.replace(",", "").lstrip("0")
    digits = (whole + part).rstrip("0")
    leading = len(digits) - len(digits.lstrip("0"))
    digits = digits[leading:]
    if not digits:
        return Fraction(0)
    point = len(whole) - leading + _exponent(exponent)
    if point > DIGITS:
        return _CEILING
    if point < -DIGITS:
        return 1 / (10 * _CEILING)
    kept = max(point, 0) + DIGITS
    if len(digits) > kept:
        digits = digits[:kept] + "1"
    shift = point - len(digits)
    return Fraction(int(digits)) * Fraction(10) ** shift


def _exponent(text: str | None) -> int:
    if not text:
        return 0
    digits = text.lstrip("+-").lstrip("0")
    size = int(digits or "0") if len(digits) <= 7 else 10**7
    return -size if text.startswith("-") else size
