"""Matches the `<reasoning>`/`<answer>` layout as published regular expressions do.

Each part is taken where it first fits, which gives the same match in linear time.
"""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

_OPEN_REASONING, _CLOSE_REASONING = "<reasoning>", "</reasoning>"
_OPEN_ANSWER, _CLOSE_ANSWER = "<answer>", "</answer>"
TAGS = (_OPEN_REASONING, _CLOSE_REASONING, _OPEN_ANSWER, _CLOSE_ANSWER)
_STRICT_FORM = r"<reasoning>\n(?>.*?\n</reasoning>\n<answer>\n).*?\n</answer>\n$"
_STRICT, _STRICT_LINES = lazy_pattern(_STRICT_FORM, re.DOTALL), lazy_pattern(_STRICT_FORM)
_SOFT = lazy_pattern(r"<reasoning>(?>.*?</reasoning>\s*+<answer>).*?</answer>", re.DOTALL)
_SOFT_LINES = lazy_pattern(
    r"<reasoning>(?:(?>.*?</reasoning>[^\S\n]*+<answer>).*?</answer>|(?>.*</reasoning>)\s*+<answer>.*?</answer>)"
)


def strict_layout(text: str, *, multiline: bool) -> bool:
    """Returns whether every tag of the two blocks is alone on its line, with one or two newlines at the end.

    `multiline`: blocks may hold newlines (the published expression's DOTALL flag).
    """
    return (_STRICT if multiline else _STRICT_LINES).match(text) is not None


def soft_layout(text: str, *, multiline: bool) -> bool:
    """Returns whether the text starts with a reasoning block and then an answer block; `multiline`: with newlines."""
    return (_SOFT if multiline else _SOFT_LINES).match(text) is not None


def one_of_each(text: str) -> bool:
    """Returns whether each of the four tags occurs once, in order, and neither block is blank."""
    if any(text.count(tag) != 1 for tag in TAGS):
        return False
    at = [text.index(tag) for tag in TAGS]
    if at != sorted(at):
        return False
    reasoning = text[at[0] + len(_OPEN_REASONING) : at[1]]
    answer = text[at[2] + len(_OPEN_ANSWER) : at[3]]
    return bool(reasoning.strip() and answer.strip())


def count_tags(text: str) -> float:
    """Gives 0.125 per tag that occurs once, less 0.001 per character after the last `</answer>`; at least 0."""
    score = 0.125 * sum(text.count(tag) == 1 for tag in TAGS)
    trailing = text.rpartition(_CLOSE_ANSWER)[2].strip() if _CLOSE_ANSWER in text else ""
    return max(0.0, score - 0.001 * len(trailing))


def count_newline_tags(text: str) -> float:
    """Counts tags with their newlines, as published; the last two tests charge 0.001 per trailing character each."""
    score = 0.0
    if text.count("<reasoning>\n") == 1:
        score += 0.125
    if text.count("\n</reasoning>\n") == 1:
        score += 0.125
    if text.count("\n<answer>\n") == 1:
        score += 0.125
        score -= len(text.split("\n</answer>\n")[-1]) * 0.001
    if text.count("\n</answer>") == 1:
        score += 0.125
        score -= (len(text.split("\n</answer>")[-1]) - 1) * 0.001
    return score
