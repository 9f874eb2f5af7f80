"""Decides whether the text beside a number changes its value: 4 in "4π", "4x", "4!" or "4 mod 3" is no answer 4.

A root, a function, a constant, a variable or a bracket multiplies the number; behind an operator it belongs to an open
sum or product. A letter that may be a unit ("72g", "5 m") changes nothing.
"""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

_BESIDE = 60
_FUNCTIONS = r"log|ln|lg|exp|sin|cos|tan|cot|sec|csc|sinh|cosh|tanh|arcsin|arccos|arctan|gcd|lcm|max|min"
_GREEK = (
    r"\\(?:Gamma|Phi|Psi|Lambda|Theta|Sigma|Omega|mu|pi|tau|phi|varphi|theta|alpha|beta|gamma|delta|epsilon|varepsilon|lambda|sigma|omega|rho|xi|eta|kappa|nu|psi"
    r"|chi|zeta|hbar|ell|infty|imath|jmath)(?![a-zA-Z])|[\u0391-\u03a8\u03b1-\u03bb\u03bd-\u03c9\u221e](?!\w)|pi\b"
)
_VALUE = (
    r"\\(?:sqrt|[dtc]?frac|[dt]?binom|sum|prod|int|lim|vec|bar|hat|overline)(?![a-zA-Z])|[\u221a\u221b\u222b]|(?:sqrt|cbrt|root)\b"
    rf"|\\(?:{_FUNCTIONS})(?![a-zA-Z])|(?:{_FUNCTIONS})\s?[({{\d_^\\]|{_GREEK}"
)
_LETTER = r"(?![\w'\u2019])(?![ ][A-Za-z]{2})"
_VARIABLE = (
    rf"(?:x(?!\s?[\d$(]){_LETTER}|[abcdefijnopqrtuvwyzDEGHIOPQRSUXYZ](?![\w'\u2019])|(?!cc\b)[abcxyz]{{2,3}}(?!\w))"
)
_OPERATOR = r"(?:[-+*/^\u00d7\u00b7\u22c5\u00f7\u2212]|\\(?:cdot|times|ast|div)(?![a-zA-Z]))"
_AFTER = lazy_pattern(
    rf"[)}}]{{0,2}}\s?(?:{_VALUE})"
    rf"|[)}}]{{0,2}}{_VARIABLE}"
    rf"|\s?[b-zB-Z](?=[\s$)}}\].]*\Z)(?<![mghsNJWVACFLlkKMBT])"
    rf"|[)}}]{{0,2}}\s?{_OPERATOR}\s?[({{$]{{0,2}}\s?(?:{_VALUE}|\d*[a-zA-Z]{_LETTER})"
    rf"|\s{{0,2}}\(\s{{0,2}}(?:[a-zA-Z]\s?[-+*/^]|{_VALUE})|\([a-z]\)|\s?\|[^|\d]{{1,9}}\||\s(?:in\s)?base\s(?!10\b)\d"
    r"|\s?!+(?=[\s)}\]]*(?:[-+*/^\u00d7\u00b7\u00f7=]|\$(?!\d)|\\(?:cdot|times|div|frac)))(?!=)"
    r"|\s?(?:\\b?mod(?![a-zA-Z])|(?:mod|modulo|factorial|squared|cubed)\b(?!\s+(?:feet|foot|inch|met|cent|kilo|mile|yard|unit)))"
    r"|\s?(?:choose\s+\d|raised\s+to\b|to\s+the\s+(?:power|\w{1,12}\s+power)\b)"
)
_OPEN_END = lazy_pattern(
    r"\s?!+[\s$)}\]]*\Z|\s?(?:[-+/=^\u00d7\u00f7\u00b7]|\b(?:or|and|plus|minus|times)\b)[\s$]*\Z", re.IGNORECASE
)
_BEFORE = lazy_pattern(
    rf"(?:{_VALUE})(?:_(?:\{{\w{{0,9}}\}}|\w))?\s?(?:[({{][^(){{}}]{{0,20}}[)}}])?\s?{_OPERATOR}?\s?[({{$]{{0,2}}\s?\Z"
    r"|(?<![A-Za-z])(?<![A-Za-z]\s)\d*[a-zA-Z]\s?[-+*/\u00d7\u00b7]\s?[({$]{0,2}\s?\Z"
    r"|\d[a-zA-Z]\s?[-+*/\u00d7\u00b7]\s?[({$]{0,2}\s?\Z"
)
_APPLIED = lazy_pattern(
    rf"(?:(?<![\w\\])(?:[a-zA-Z]'?|{_FUNCTIONS})\(|\\(?:{_FUNCTIONS})(?![a-zA-Z])\s?[({{]?|{_GREEK}\s?\("
    r"|(?<![\w\\])(?:log|ln|lg|exp|sin|cos|tan|cot|sec|csc)\s)[\s$]?\Z"
)
"""A function that is applied to the number: "f(72)", "log 72"."""


def changed(text: str, start: int, end: int, *, marked: bool) -> bool:
    """Returns whether the number at `start` to `end` is part of an expression that has another value.

    `text`: after `plain_text`. `marked`: it is a marked answer and no prose: "!" is a factorial, an operator at the end
    leaves it open, and what precedes the number counts too.
    """
    if _AFTER.match(text, end, end + _BESIDE) or _APPLIED.search(text, max(0, start - _BESIDE), start):
        return True
    return marked and bool(_OPEN_END.match(text, end) or _BEFORE.search(text, max(0, start - _BESIDE), start))
