"""Mathematics typed without LaTeX, as LaTeX: `2*sqrt(3)/pi` in, `2*\\sqrt{3}/\\pi` out. Nothing is evaluated.

Known: `**`, powers in round brackets or of several characters, `sqrt()`, `abs()`, the elementary functions, Greek
letters, `infinity`. A text with a backslash is LaTeX already; in it, as in the other, the characters that LaTeX has a
command for (`x\u00b2`, `\u221e`, `90\u00b0`, `\u2205`) become that command.
"""

from __future__ import annotations

import re

_FUNCTIONS = "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan ln log exp min max gcd lcm"
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
_NAMES = {name: f"\\{name}" for name in f"{_FUNCTIONS} {_GREEK}".split()}
_NAMES |= {f"a{name}": f"\\arc{name}" for name in ("sin", "cos", "tan")}
_NAMES |= dict.fromkeys(("infinity", "Infinity", "inf", "oo"), "\\infty")
_NAME = re.compile(r"(?<![A-Za-z])(?:" + "|".join(sorted(_NAMES, key=len, reverse=True)) + r")(?![A-Za-z])")
_BRACKETED = re.compile(r"(?<![A-Za-z])(?P<name>sqrt|[Aa]bs)\s?\(|(?P<power>\^)\s?\(|√\(")
_SUPERSCRIPTS = dict(
    zip("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b\u207a\u207f", "0123456789-+n", strict=True)
)
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
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
    }
)
_BARE_POWER = re.compile(r"\^\s?([-+]?(?:\d+(?:\.\d+)?|[A-Za-z]))(?![\d({])")
_BARE_ROOT = re.compile(r"(?:√|(?<![A-Za-z])sqrt)\s?(\d+|[A-Za-z](?![A-Za-z]))")


def latex_of(text: str) -> str:
    """Returns a text as LaTeX, unchanged when it is that already."""
    if "\\" in text:
        return text
    text = _bracketed(text.replace("**", "^"))
    text = _BARE_ROOT.sub(r"\\sqrt{\1}", _BARE_POWER.sub(r"^{\1}", text))
    return _NAME.sub(lambda match: f"{_NAMES[match[0]]} ", text)


def commands(text: str) -> str:
    """Returns LaTeX with characters such as \u00b2, \u221e and \u00b0 as the commands that stand for them."""
    if text.isascii():
        return text
    text = _RAISED.sub(lambda match: "^{" + "".join(_SUPERSCRIPTS[sign] for sign in match[0]) + "}", text)
    return text.translate(_COMMANDS)


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
    return "\\sqrt{", "}"
