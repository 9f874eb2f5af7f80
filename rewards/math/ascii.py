"""Rewrites mathematics typed without LaTeX as LaTeX, `2*sqrt(3)/pi` as `2*\\sqrt{3}/\\pi`. Nothing is evaluated.

Known: `**`, powers in round brackets or of several characters, `sqrt()`, `cbrt()`, `abs()`, the elementary functions,
Greek letters, `infinity`, sets in braces, `<=`, `>=`, `!=`. A text with a backslash is LaTeX already. In both,
characters with a LaTeX command (`x\u00b2`, `\u221e`, `90\u00b0`, `\u00bd`) become that command.
"""

from __future__ import annotations

import re
import unicodedata

from grpo.plugins._pattern import lazy_pattern

_FUNCTIONS = "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan ln log exp min max gcd lcm"
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
NAMES = {name: f"\\{name}" for name in f"{_FUNCTIONS} {_GREEK}".split()}
"""Names typed without a backslash, and the command for each."""

NAMES |= {f"a{name}": f"\\arc{name}" for name in ("sin", "cos", "tan")}
NAMES |= dict.fromkeys(("infinity", "Infinity", "inf", "oo"), "\\infty")
_NAME = lazy_pattern(r"(?<![A-Za-z])(?:" + "|".join(sorted(NAMES, key=len, reverse=True)) + r")(?![A-Za-z])")
_BRACKETED = lazy_pattern(r"(?<![A-Za-z])(?P<name>sqrt|cbrt|cuberoot|[Aa]bs)\s?\(|(?P<power>\^)\s?\(|[√\u221b]\s?\(")
_SUPERSCRIPTS = dict(
    zip("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b\u207a\u207f", "0123456789-+n", strict=True)
)
_RAISED = lazy_pattern(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED = lazy_pattern("[\u2080-\u208e\u2090\u2091\u2093\u2095-\u209c\u1d62\u1d63\u2c7c]+")
_VULGAR = lazy_pattern("[\u00bc-\u00be\u2150-\u215e]")
_BARRED = lazy_pattern(r"(?:\d[\u0304\u0305])+")
_COMMANDS = str.maketrans(
    {
        "\u2212": "-",
        "\u221e": "\\infty ",
        "\u00b0": "^\\circ ",
        "\u2205": "\\emptyset ",
        "\u222a": "\\cup ",
        "\u2229": "\\cap ",
        "\u2208": "\\in ",
        "\u211d": "\\mathbb{R} ",
        "\u2124": "\\mathbb{Z} ",
        "\u2264": "\\le ",
        "\u2265": "\\ge ",
        "\u2260": "\\ne ",
        "\u00b1": "\\pm ",
        "\u2213": "\\mp ",
        "\u00d7": "\\times ",
        "\u00b7": "\\cdot ",
        "\u22c5": "\\cdot ",
        "\u00f7": "/",
        "\u2044": "/",
        "\u2215": "/",
        "\u2026": "\\ldots ",
        "\u2248": "\\approx ",
        **{
            chr(code): f"\\{name} "
            for code in (*range(0x391, 0x3AA), *range(0x3B1, 0x3CA))
            for name in [unicodedata.name(chr(code), "").rpartition(" ")[2]]
            for name in [name.capitalize() if code < 0x3B0 else name.lower()]
            if name in _GREEK.split()
        },
    }
)
_BARE_POWER = lazy_pattern(r"\^\s?([-+]?(?:\d+(?:\.\d+)?|[A-Za-z]))(?![\d({])")
_BARE_ROOT = lazy_pattern(r"(?:√|(?<![A-Za-z])sqrt)\s?(\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])|\u03c0)")
_BARE_CUBIC = lazy_pattern(r"\u221b\s?(\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])|\u03c0)")
_BRACES = lazy_pattern(r"(?<![\^_}\w])\{([^{}]*)\}")
_COMPARED = {"<=": "\\le ", ">=": "\\ge ", "!=": "\\ne ", "+/-": "\\pm ", "+-": "\\pm "}
_COMPARISON = lazy_pattern("|".join(map(re.escape, _COMPARED)))


def latex_of(text: str) -> str:
    """Returns a text as LaTeX, unchanged when it is that already."""
    if "\\" in text:
        return text
    text = _bracketed(text.replace("**", "^"))
    text = _BARE_ROOT.sub(r"\\sqrt{\1}", _BARE_POWER.sub(r"^{\1}", text))
    text = _COMPARISON.sub(lambda match: _COMPARED[match[0]], _BRACES.sub(r"\\{\1\\}", text))
    return _NAME.sub(lambda match: f"{NAMES[match[0]]} ", text)


def commands(text: str) -> str:
    """Returns LaTeX with characters such as \u00b2, \u221e and \u00b0 as the commands that stand for them."""
    if text.isascii():
        return text
    text = overlined(text)
    text = _RAISED.sub(lambda match: "^{" + "".join(_SUPERSCRIPTS[sign] for sign in match[0]) + "}", text)
    text = _LOWERED.sub(lambda match: f"_{{{unicodedata.normalize('NFKC', match[0])}}}", text)
    text = _BARE_CUBIC.sub(r"\\sqrt[3]{\1}", _BARE_ROOT.sub(r"\\sqrt{\1}", text))
    text = _VULGAR.sub(_fraction, text)
    return text.translate(_COMMANDS)


def overlined(text: str) -> str:
    """Returns a text with digits that bear a bar of their own as `\\overline{}`."""
    return _BARRED.sub(lambda match: "\\overline{" + "".join(filter(str.isdigit, match[0])) + "}", text)


def _fraction(match: re.Match[str]) -> str:
    upper, _, lower = unicodedata.normalize("NFKC", match[0]).partition("\u2044")
    return rf"\frac{{{upper}}}{{{lower}}}"


def _bracketed(text: str) -> str:
    """Gives roots, powers and absolute values in round brackets the brackets of LaTeX, in one pass."""
    pieces: list[str] = []
    closers: list[str] = []
    position = 0
    while position < len(text):
        match = _BRACKETED.match(text, position)
        if match:
            opening, closing = _brackets(match)
            pieces.append(opening)
            closers.append(closing)
            position = match.end()
            continue
        character = text[position]
        if character == "(":
            closers.append(")")
        elif character == ")" and closers:
            character = closers.pop()
        pieces.append(character)
        position += 1
    return "".join(pieces)


def _brackets(match: re.Match[str]) -> tuple[str, str]:
    if match["power"]:
        return "^{", "}"
    if (match["name"] or "").lower() == "abs":
        return "\\left|", "\\right|"
    cubic = match[0][0] == "\u221b" or match["name"] in ("cbrt", "cuberoot")
    return "\\sqrt[3]{" if cubic else "\\sqrt{", "}"
