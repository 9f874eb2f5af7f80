"""Removes text that a reader does not see, or sees crossed out: comments, hidden or struck text."""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

_ELEMENT = lazy_pattern(
    r"<!--(?:(?!-->).)*+(?P<comment>-->)?|<(?:(?P<name>style|script|template|title|del|strike)\b[^<>]{0,400}"
    r"|(?P<unseen>[a-z]\w{0,20})\b(?=[^<>]{0,400}(?:\shidden\b|display\s?:\s?none|visibility\s?:\s?hidden))[^<>]*)>"
    r"(?:(?!</(?:(?P=name)|(?P=unseen))\b).)*+(?P<closed></\w+\s*>)?",
    re.DOTALL | re.IGNORECASE,
)
_STRUCK = lazy_pattern(
    r"(?<!~)~~(?=[^\s~])[^~\n]{1,400}(?<!\s)~~(?!~)"
    r"|\\(?:[bx]?cancel|sout|xout|[hv]?phantom)\s?\{(?:[^{}]|\{[^{}]*+\}){0,400}+\}"
)


def visible(text: str) -> str:
    """Returns a text with a blank for each comment, hidden element and struck passage."""
    if "<" in text:
        text = _ELEMENT.sub(_unless_open, text)
    return _STRUCK.sub(" ", text) if "~~" in text or "\\" in text else text


def _unless_open(element: re.Match[str]) -> str:
    return " " if element["comment"] or element["closed"] else element[0]
