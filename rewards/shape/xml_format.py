"""Matches the `<reasoning>`/`<answer>` layout as published regular expressions do, in linear time."""

from __future__ import annotations

from grpo.plugins._pattern import lazy_pattern

_OPEN_REASONING, _CLOSE_REASONING = "<reasoning>", "</reasoning>"
_OPEN_ANSWER, _CLOSE_ANSWER = "<answer>", "</answer>"
TAGS = (_OPEN_REASONING, _CLOSE_REASONING, _OPEN_ANSWER, _CLOSE_ANSWER)
_BETWEEN = lazy_pattern(r"</reasoning>\s*+<answer>")


def strict_layout(text: str, *, multiline: bool) -> bool:
    """Returns whether the text is the two blocks with every tag alone on its line, and one or two newlines at its end.

    `multiline`: blocks may hold newlines (the published expression's DOTALL flag).
    """
    head, middle, tail = "<reasoning>\n", "\n</reasoning>\n<answer>\n", "\n</answer>\n"
    if not text.startswith(head):
        return False
    first = text.find(middle, len(head))
    if first < 0 or (not multiline and "\n" in text[len(head) : first]):
        return False
    inside = first + len(middle)
    for ending in (tail, tail + "\n"):
        last = len(text) - len(ending)
        if last >= inside and text.endswith(ending) and (multiline or "\n" not in text[inside:last]):
            return True
    return False


def soft_layout(text: str, *, multiline: bool) -> bool:
    """Returns whether the text starts with a reasoning block and then an answer block; `multiline`: with newlines."""
    if not text.startswith(_OPEN_REASONING):
        return False
    first_newline = text.find("\n")
    furthest = len(text) if multiline or first_newline < 0 else first_newline
    barred = 0
    for between in _BETWEEN.finditer(text, len(_OPEN_REASONING)):
        if between.start() > furthest:
            return False
        if between.end() <= barred:
            continue
        close = text.find(_CLOSE_ANSWER, between.end())
        if close < 0:
            return False
        newline = -1 if multiline else text.find("\n", between.end(), close)
        if newline < 0:
            return True
        barred = newline
    return False


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
