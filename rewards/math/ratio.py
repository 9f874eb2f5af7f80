"""Writes a ratio of three terms and more as the tuple of its terms over the first: `2:4:6` is `(2, 3)`."""

from __future__ import annotations

from grpo.plugins._pattern import lazy_pattern

_TERM = r"(?!\s*0+(?:\.0+)?\s*:)[^:,;=<>]{0,59}[\w})][^:,;=<>]{0,20}"
_NAMES = lazy_pattern(r"\s*\\?[a-zA-Z]{1,8}(?:\s*:\s*\\?[a-zA-Z]{1,8}){1,9}\s*=")
_RATIO = lazy_pattern(rf"{_TERM}(?::{_TERM}){{2,9}}")
_COLON = lazy_pattern(
    r"\\(?:text|mathrm)\s?\{\s*(?:to|:)\s*\}|(?<=\s)to(?=\s)|\\colon(?![a-z])|\\mathbin\s?\{\s*:\s*\}|\{\s*:\s*\}"
)


def proportion(text: str) -> str | None:
    """Returns the terms of a ratio over its first one, as a tuple in LaTeX; None for any other text."""
    text = _NAMES.sub("", _COLON.sub(":", text).strip().strip("$"), count=1)
    if _RATIO.fullmatch(text) is None:
        return None
    first, *others = (term.strip() for term in text.split(":"))
    shares = (rf"\frac{{{other}}}{{{first}}}" for other in others)
    return f"({','.join(shares)})"
