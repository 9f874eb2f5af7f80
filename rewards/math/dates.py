"""Compares times of day and dates, however written: `3:30 PM` is 15:30, and `March 15th` is 15 March."""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.math.answer import MARKUP

_LONGEST, _CLAUSE = 60, 400
_NAMES = "january february march april may june july august september october november december"
_MONTHS = {name[:3]: number for number, name in enumerate(_NAMES.split(), 1)}
_MONTH = rf"(?P<month>{'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in _NAMES.split())}|sept)\.?"
_DAY = r"(?:the\s+)?(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_DATES = [
    lazy_pattern(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_MONTH}\s+{_DAY}(?:(?:\s*,\s*|\s+)(?P<year>\d{{4}}))?",
        rf"{_DAY}(?:\s+of)?\s+{_MONTH}(?:(?:\s*,\s*|\s+)(?P<year>\d{{4}}))?",
    )
]
_CLOCK = lazy_pattern(r"\b(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2}))?\s*(?P<half>[ap]\.?\s?m\.?)?", re.IGNORECASE)
_TWELVE = {"noon": (12, 0), "midnight": (0, 0)}
_BLANK = lazy_pattern(r"\\[ ,;:]|[~\s$]+")
_HOURS, _HALF = 24, 12


def is_date(text: str) -> bool:
    """True for a time of day, with or without its half, and for a date."""
    if len(text) > _LONGEST:
        return False
    text = _usual(text)
    return _date(text) is not None or _clock(text) is not None


def last_date(clause: str) -> str:
    """Returns the last date, or time with its half of the day, in a clause of prose; "" where there is none."""
    text = _usual(clause[-_CLAUSE:])
    matches = [
        match for form in (*_DATES, _CLOCK) for match in form.finditer(text) if _CLOCK is not form or match["half"]
    ]
    return max(matches, key=lambda match: match.end())[0] if matches else ""


def same_date(gold: str, text: str) -> bool | None:
    """Whether two texts are the same time of day or the same date; None where one of them is neither.

    A year that one of two dates leaves out is the other's, and so is the half of the day of a time before 12:59.
    """
    if len(gold) > _LONGEST or len(text) > _LONGEST:
        return None
    gold, text = _usual(gold), _usual(text)
    dates = _date(gold), _date(text)
    if dates[0] and dates[1]:
        first, second = dates[0], dates[1]
        return first[:2] == second[:2] and (None in (first[2], second[2]) or first[2] == second[2])
    clocks = _clock(gold), _clock(text)
    if clocks[0] is None or clocks[1] is None or not (clocks[0][1] or clocks[1][1]):
        return None
    return bool({*_readings(*clocks[0])} & {*_readings(*clocks[1])})


def _usual(text: str) -> str:
    return _BLANK.sub(" ", MARKUP.sub(r"\1", text)).strip(" .")


def _date(text: str) -> tuple[int, int, str | None] | None:
    match = next(filter(None, (form.fullmatch(text) for form in _DATES)), None)
    return (_MONTHS[match["month"][:3].lower()], int(match["day"]), match["year"]) if match else None


def _clock(text: str) -> tuple[tuple[int, int], str] | None:
    """Hour and minute as written, and the half of the day: "a", "p", "=" for noon and midnight, or ""."""
    if text.lower() in _TWELVE:
        return _TWELVE[text.lower()], "="
    match = _CLOCK.fullmatch(text)
    if match is None or not (match["minute"] or match["half"]):
        return None
    hour, minute, half = int(match["hour"]), int(match["minute"] or "0"), (match["half"] or "")[:1].lower()
    if minute > 59 or hour >= _HOURS or (half and not 1 <= hour <= _HALF):
        return None
    return (hour, minute), half


def _readings(moment: tuple[int, int], half: str) -> list[tuple[int, int]]:
    hour, minute = moment
    if half == "=":
        return [moment]
    if half:
        return [(hour % _HALF + (_HALF if half == "p" else 0), minute)]
    return [(hour % _HALF, minute), (hour % _HALF + _HALF, minute)] if 1 <= hour <= _HALF else [moment]
