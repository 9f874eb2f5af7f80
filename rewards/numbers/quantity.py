"""Reads the unit that a quantity ends in, and compares it with another one: `500\\text{ cm}` is `5 m`.

Only units of the table are known, and only set apart or with more than one letter: in `2m` the letter may be a
variable. Other words after a number ("72 clips") are no unit here and never differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from grpo.plugins._pattern import lazy_pattern

_TABLE = """
length 1 m meter metre
length 1/1000 mm millimeter millimetre
length 1/100 cm centimeter centimetre
length 1/10 dm decimeter decimetre
length 1000 km kilometer kilometre
length 1/1000000 micrometer micrometre micron
length 1/1000000000 nm nanometer nanometre
length 127/5000 inch inche
length 381/1250 ft foot feet
length 1143/1250 yd yard
length 201168/125 mi mile
mass 1 g gram gramme
mass 1/1000 mg milligram
mass 1000 kg kilogram
mass 1000000 tonne
mass 45359237/100000 lb pound
mass 45359237/1600000 oz ounce
time 1 s sec second
time 1/1000 ms millisecond
time 60 min minute
time 3600 h hr hour
time 86400 day
time 604800 week
calendar 1 month
calendar 12 year yr
calendar 120 decade
calendar 1200 century centurie
dollars 1 dollar usd
dollars 1/100 cent
euros 1 euro eur
amount 1 mol mole
current 1 A amp ampere
temperature 1 celsius
fahrenheit 1 fahrenheit
angle 1 degree deg
radians 1 radian rad
"""
_DERIVED = """
1000 g m s-2: N newton
1000 g m2 s-2: J joule
1000 g m2 s-3: W watt
1 s-1: Hz hertz
1000 g m-1 s-2: Pa pascal
1 A s: C coulomb
1000 g m2 s-3 A-1: V volt
1000 g m2 s-3 A-2: ohm
1/1000 A2 s4 g-1 m-2: F farad
"""
_SYMBOLS = "N J W V Hz Pa A mol g s"
_PREFIXES = {"G": 9, "M": 6, "k": 3, "m": -3, "\u00b5": -6, "\u03bc": -6, "n": -9}
_SPELT = "newton joule watt volt hertz pascal ampere gram second meter metre"
_SPELT_PREFIXES = {"giga": 9, "mega": 6, "kilo": 3, "milli": -3, "micro": -6, "nano": -9}
_CUBES = {"L": 1000, "l": 1000, "liter": 1000, "litre": 1000, "mL": 1, "ml": 1, "milliliter": 1, "millilitre": 1}
_SPEEDS = {"mph": Fraction(1397, 3125), "kph": Fraction(5, 18), "kmh": Fraction(5, 18), "kmph": Fraction(5, 18)}
_ANGLES = {"angle", "temperature", "fahrenheit"}

_LONGEST = 400
_PRICE = lazy_pattern(r"\s*-?\s*\\?\$\s?-?[\d.]|[^$]*[\d}]\s?\\?\$\s*\Z")
_SCALE = lazy_pattern(r"degree\s+(?:celsius|c)\b", re.IGNORECASE)
_FAHRENHEIT = lazy_pattern(r"degree\s+(?:fahrenheit|f)\b", re.IGNORECASE)
_FACED = r"\{\s*\\(?:text|mathrm)\s?\{([^{}]*)\}\s*\}"
_SIGNS = [
    (lazy_pattern(pattern), word)
    for pattern, word in {
        r"\\(?:text|textrm|mathrm|mbox)\s?\{\s*in\.?\s*\}|\bin(?=\s?(?:\^\s?\{?\s?[23]|[\u00b2\u00b3]))": " inch ",
        r"\^\s?\{\s?([-+]?\d{1,9})\s?\}": r"^\1",
        rf"\\[dt]?frac\s?{_FACED}\s?{_FACED}": r" \1 / \2",
        r"\^\s?\{?\s?\\circ(?![a-z])\s?\}?|\u00b0": " degree ",
        r"\\(?:text|textrm|mathrm|mbox|rm)(?![a-z])\s?\{?|\\[ ,;:!]|[~{}$]|\\(?:left|right)(?![a-z])": " ",
        r"\\Omega(?![a-z])|[\u2126\u03a9]": " ohm",
        r"(?:\\mu(?![a-z])|[\u00b5\u03bc])\s*m\b": " micron",
        r"\bms\s?(?=\^)": "m s",
        r"\\cdot(?![a-z])": "*",
        "\u00b2": "^2",
        "\u00b3": "^3",
    }.items()
]
_PIECE = r"(\d[\d,]*(?:\.\d+)?)\s*([A-Za-z]{1,12})(?![A-Za-z])\.?"
_AMOUNT = lazy_pattern(rf"(?<![\w.^]){_PIECE}(?:(?:\s*,?\s*and\s+|\s*,\s*|\s*){_PIECE}){{0,3}}")
_PIECES = lazy_pattern(_PIECE)
_CLOSED = lazy_pattern(r".*(?:\\[dt]?frac|\\sqrt|\u221a|sqrt).*[})]", re.DOTALL)
_TAIL = lazy_pattern(r"(?<![\\A-Za-z_^])[\s(]*[A-Za-z]+(?:\s*(?:\^\s?-?\d|[/\u00b7*]|\.?\s)\s*[A-Za-z]*)*[).\s]*\Z")
_PART = lazy_pattern(r"([A-Za-z]+)(?:\s?\^\s?(-?\d))?|([/\u00b7*.()])")
_BEHIND = {name: {"m": "min"} for name in ("h", "hr", "hrs", "hour", "hours")}
_BEHIND |= {name: {"in": "inch"} for name in ("ft", "foot", "feet")}
_OR = lazy_pattern(r"\bor\b", re.IGNORECASE)
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: the powers of its dimensions, and its size in the base units of the table."""

    dimensions: frozenset[tuple[str, int]]
    size: Fraction


def _known() -> dict[str, Unit]:
    known = {}
    for dimension, size, *names in map(str.split, _TABLE.strip().split("\n")):
        for name in names:
            known[name] = Unit(frozenset({(dimension, 1)}), Fraction(size))
    for line in _DERIVED.strip().split("\n"):
        formula, _, derived = line.partition(":")
        amount, *factors = formula.split()
        dimensions = set()
        for factor in factors:
            base = factor.rstrip("-0123456789")
            power = int(factor.removeprefix(base) or 1)
            dimensions |= {(dimension, power) for dimension, _one in known[base].dimensions}
        known |= dict.fromkeys(derived.split(), Unit(frozenset(dimensions), Fraction(amount)))
    known |= {name: Unit(frozenset({("length", 3)}), Fraction(size, 10**6)) for name, size in _CUBES.items()}
    known |= {
        f"{prefix}{name}": Unit(known[name].dimensions, known[name].size * Fraction(10) ** power)
        for names, prefixes in ((_SYMBOLS, _PREFIXES), (_SPELT, _SPELT_PREFIXES))
        for name in names.split()
        for prefix, power in prefixes.items()
        if f"{prefix}{name}" not in known
    }
    return known | {name: Unit(frozenset({("length", 1), ("time", -1)}), size) for name, size in _SPEEDS.items()}


_UNITS = _known()


def unit_ratio(text: str, gold: str) -> Fraction | None:
    """Returns how many of the gold's units one of the text's is; 0 for different kinds, 1 if either is unknown."""
    wanted = unit(gold)
    mine = None if wanted is None else unit(text)
    if mine is None or wanted is None or mine == wanted:
        return Fraction(1)
    if mine.dimensions != wanted.dimensions:
        kinds = {name for name, _power in mine.dimensions | wanted.dimensions}
        return Fraction(1 if kinds <= _ANGLES and "angle" in kinds else 0)
    return mine.size / wanted.size


def amounts(text: str) -> list[tuple[Unit, int]]:
    """Returns the quantities of a text, such as "3 hours and 20 minutes", each as a unit of that size and its parts.

    Left out: parts of different kinds ("3 hours and 20 miles"), unknown units, parts that do not get smaller ("5 m, 3
    m").
    """
    if len(text) > _LONGEST:
        return []
    quantities = []
    for match in _AMOUNT.finditer(_set_apart(text)):
        pieces = _PIECES.findall(match[0])
        short = _BEHIND.get(pieces[0][1].lower(), {})
        named = [_named(short.get(name, name)) for _size, name in pieces]
        known = [unit for unit in named if unit is not None]
        falling = all(unit.size > other.size for unit, other in pairwise(known))
        if len(known) == len(pieces) and len({unit.dimensions for unit in known}) == 1 and falling:
            sizes = (Fraction(size.replace(",", "")) for size, _name in pieces)
            total = sum((size * unit.size for size, unit in zip(sizes, known, strict=True)), Fraction(0))
            quantities.append((Unit(known[0].dimensions, total), len(known)))
    return quantities


def same_amount(text: str, gold: str) -> bool | None:
    """Returns whether a text states a gold quantity, where one of the two has several units: "3 hours 20 minutes".

    None where neither has several units, or one of them is no quantity of known units.
    """
    wanted = amounts(gold)
    quantities = amounts(text) if len(wanted) == 1 else []
    if not quantities or max(parts for _one, parts in (*wanted, *quantities)) < 2:
        return None
    stated = quantities if _OR.search(text) else quantities[-1:]
    return all(quantity == wanted[0][0] for quantity, _parts in stated)


def turns(text: str, gold: str) -> bool:
    """Returns whether one text is in degrees and the other in radians, so that they differ by a factor of pi."""
    units = unit(text), unit(gold)
    return {name for other_unit in units if other_unit for name, _power in other_unit.dimensions} == {
        "angle",
        "radians",
    }


def unit(text: str) -> Unit | None:
    text = text.strip()
    if _CLOSED.fullmatch(text.rstrip("$")) and "\\text" not in text and "\\mathrm" not in text:
        return None
    if text.startswith("$") and text.endswith("$") and len(text) > 1:
        text = text[1:-1]
    if _PRICE.match(text):
        return _UNITS["dollar"]
    return _split(text)[1]


def magnitude(text: str) -> str:
    """Returns what stands before the unit that a text ends in; all of it where no unit is known."""
    before, unit = _split(text)
    return text if unit is None else before


def _split(text: str) -> tuple[str, Unit | None]:
    if len(text) > _LONGEST:
        return text, None
    text = _FAHRENHEIT.sub("fahrenheit", _SCALE.sub("celsius", _set_apart(text)))
    tail = _TAIL.search(text)
    if tail is None or not any(map(str.isdigit, text[: tail.start()])):
        return text, None
    glued = text[tail.start() : tail.start() + 1].isalpha()
    words = tail[0].strip(" .()\t\n")
    return text[: tail.start()].strip(), None if glued and len(words) < 2 else _product(words)


def _set_apart(text: str) -> str:
    for pattern, word in _SIGNS:
        text = pattern.sub(word, text)
    return text


def _product(words: str) -> Unit | None:
    powers: dict[str, int] = {}
    size = Fraction(1)
    sign, waiting, last = 1, 1, None
    for match in _PART.finditer(words):
        name, power, mark = match.groups()
        if mark or name == "per":
            sign = -1 if mark == "/" or name == "per" else sign
            continue
        if name in _POWERS:
            if name in ("squared", "cubed") and last is not None:
                size *= _raise(powers, last, (_POWERS[name] - 1) * sign)
            else:
                waiting = _POWERS[name]
            continue
        last = _named(name)
        if last is None:
            return None
        size *= _raise(powers, last, sign * waiting * int(power or 1))
        waiting = 1
    kept = frozenset((name, power) for name, power in powers.items() if power)
    return Unit(kept, size) if last is not None and waiting == 1 else None


def _named(name: str) -> Unit | None:
    for form in (name, name.lower(), name.lower().removesuffix("s")):
        if form in _UNITS:
            return _UNITS[form] if len(form) > 1 or form == name else None
    return None


def _raise(powers: dict[str, int], factor: Unit, power: int) -> Fraction:
    for name, exponent in factor.dimensions:
        powers[name] = powers.get(name, 0) + exponent * power
    return factor.size**power
