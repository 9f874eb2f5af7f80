"""Respells what Chinese writes in characters as LaTeX: numerals, joining words, units and usual answers.

`百分之五十` is 50\\%, `2.5亿` 250000000, `1、2` and `1和2` are `1,2`, `12平方厘米` is 12 cm^2 and `12元` is 12.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from fractions import Fraction

from grpo.plugins._pattern import lazy_pattern

FULL_WIDTH = {code + 0xFEE0: chr(code) for code in range(0x22, 0x7F)} | {0x3000: " "}
"""For `str.translate`: full-width forms of ASCII, but for the exclamation mark, which is no factorial."""

_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_TENS = {"十": 10, "百": 100, "千": 1000}
_SCALES = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_NUMERAL = "零〇一二两三四五六七八九十百千万萬亿億"
_HAN = lazy_pattern("[\u3001\u4e00-\u9fff]")
_LONGEST = 200
_WORDED = lazy_pattern(
    rf"(?P<minus>负?)(?P<percent>百分之)?(?:(?P<lower>[{_NUMERAL}]+)分之)?(?P<whole>[{_NUMERAL}]+)(?:点(?P<part>[零〇一二三四五六七八九]+))?"
)
_SCALED = lazy_pattern(r"(?<![\d.])(\d{1,15})(?:\.(\d{1,15}))?\s?([万萬亿億])")
_PERCENT = lazy_pattern(r"百分之\s?(\d+(?:\.\d+)?)")
_OVER = lazy_pattern(r"(\d+)\s?分之\s?(\d+)")
_MINUS = lazy_pattern(r"负(?=\s?[\d\\])")
_AND = lazy_pattern(r"\s?(?:以及|[、和与及])\s?")
_OR = lazy_pattern(r"\s?或者?(?:是)?\s?")
_MEASURES = {
    name: unit
    for unit, names in {
        "mm": "毫米",
        "cm": "厘米",
        "dm": "分米",
        "km": "千米 公里",
        "m": "米",
        "mg": "毫克",
        "kg": "千克 公斤",
        "g": "克",
        "mL": "毫升",
        "L": "升",
        "min": "分钟",
        "h": "小时",
        "s": "秒",
        "day": "天",
        "week": "周",
        "degree": "度",
    }.items()
    for name in names.split()
}
_RAISED = {"平方": "^2", "立方": "^3"}
_MEASURED = lazy_pattern(
    rf"(?P<raised>平方|立方)?(?P<name>{'|'.join(_MEASURES)})(?:(?P<per>每|/)(?P<time>{'|'.join(_MEASURES)}))?\s*"
)
_NUMBER_THEN = lazy_pattern(r"(?P<size>.*[\d}])\s*(?P<words>[\u4e00-\u9fff/]{1,8})\s*\.?", re.DOTALL)
_HEDGED = lazy_pattern("[不非或多余约近吗错误否没无]|左右|以[上下内]")
_USUAL = {
    r"\emptyset": "无解 空集 无实数解 没有解",
    r"\mathbb{R}": "全体实数 所有实数 任意实数 一切实数 实数集",
    r"\infty": "无穷 无穷大 正无穷 正无穷大",
    "DNE": "不存在 极限不存在",
    "正确": "对",
    "错误": "错 不对 不正确",
}
_IN_WORDS = {word: latex for latex, words in _USUAL.items() for word in words.split()}


def respelt(text: str) -> str:
    """Returns an answer that has Chinese characters in the usual LaTeX; what is not known, as it is."""
    if text.isascii() or len(text) > _LONGEST or not _HAN.search(text):
        return text
    core = text.strip().removesuffix("。").strip()
    usual = _IN_WORDS.get(core)
    if usual is not None:
        return usual
    value = chinese_number(core)
    if value is not None:
        number = (
            f"{value.numerator}" if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
        )
        return rf"{value * 100}\%" if core.lstrip("负").startswith("百分之") else number
    text = _OVER.sub(r"\\frac{\2}{\1}", _PERCENT.sub(r"\1\\%", _SCALED.sub(_scaled, _MINUS.sub("-", core))))
    text = _OR.sub(r" \\text{ or } ", _AND.sub(",", text))
    united = _NUMBER_THEN.fullmatch(text)
    if united is None or _HEDGED.search(united["words"]):
        return text
    measured = _MEASURED.fullmatch(united["words"])
    return united["size"] + (_unit(measured) if measured else "")


def chinese_number(text: str) -> Fraction | None:
    """Returns the number that a text is in Chinese: `三`, `十二`, `二分之一`, `百分之五十`; None for other texts."""
    match = _WORDED.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    whole = _whole(match["whole"]) if match else None
    lower = _whole(match["lower"]) if match and match["lower"] else 1
    if match is None or whole is None or not lower:
        return None
    value = Fraction(whole)
    if match["part"]:
        value += Fraction(int("".join(str(_DIGITS[digit]) for digit in match["part"])), 10 ** len(match["part"]))
    value /= lower * (100 if match["percent"] else 1)
    return -value if match["minus"] else value


def _whole(text: str) -> int | None:
    """None where a character has no place there."""
    if all(character in _DIGITS for character in text):
        return int("".join(str(_DIGITS[character]) for character in text))
    total, group, digit = 0, 0, None
    for character in text:
        if character in _DIGITS:
            if digit:
                return None
            digit = _DIGITS[character]
        elif character in _TENS:
            group += (1 if digit is None else digit) * _TENS[character]
            digit = None
        else:
            total = (total + group + (digit or 0)) * _SCALES[character]
            group, digit = 0, None
    return total + group + (digit or 0)


def _scaled(match: re.Match[str]) -> str:
    value = Fraction(f"{match[1]}.{match[2] or 0}") * _SCALES[match[3]]
    return str(value) if value.denominator == 1 else match[0]


def _unit(match: re.Match[str]) -> str:
    power = _RAISED.get(match["raised"] or "", "")
    per = f"/{_MEASURES[match['time']]}" if match["time"] else ""
    return rf" \text{{ {_MEASURES[match['name']]}{power}{per}}}"
