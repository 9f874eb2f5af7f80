"""Finds the part of a completion that states its mathematical answer, and the gold of a row, both still as text.

The reasoning is read only when nothing follows it; the last statement counts. Linear in the text, of which the last
200,000 characters are read.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Literal

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.answer_text import reasoning_end, visible, without_end_tokens
from grpo.rewards.math.guard import LONGEST
from grpo.rewards.numbers.chinese import FULL_WIDTH
from grpo.rewards.numbers.hedges import revised
from grpo.rewards.numbers.numerals import INVISIBLE

Form = Literal["tag", "hash", "boxed", "sentence", "prose"]

_READ = 200_000
_MARKS = 200
_MARK = lazy_pattern(
    r"<(?P<close>/?)(?P<tag>answer|solution)\b[^<>\n]{0,80}>|(?P<box>\\(?:f?boxed|f(?:rame)?box)\s?\{)"
    r"|\#{4,}+(?P<line>[^\n\#]*+)|(?P<final>\bfinal answer\b[^\n.]{0,60}?\b(?:is|:)(?=[\s:$\\]))",
    re.IGNORECASE,
)
_CLOSING = lazy_pattern(r"</(?:answer|solution)\b[^<>\n]{0,80}>", re.IGNORECASE)
_ANY_TAG = lazy_pattern(r"</?(?:answer|solution|think|thinking|reasoning)\b[^<>\n]{0,80}>", re.IGNORECASE)
_BOX = lazy_pattern(r"\\(?:f?boxed|f(?:rame)?box)\s?\{")
_BRACE = lazy_pattern(r"(?<!\\)[{}]")
_JOINT = lazy_pattern(
    r"(?:\\quad|\\(?:text|mathrm|mbox)(?![a-z])|[\s$,;&.?()\[\]\\{}]"
    r"|\b(?:and|or|vs|maybe|perhaps|possibly|either|also|else|(?:could|might|may)(?:\s+(?:also|be))*)\b)*+",
    re.IGNORECASE,
)
MARKUP = lazy_pattern(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|sf|it|tt)|mbox)\s?\{([^{}]*)\}")
"""Words set in another face, which changes nothing; the content is the group."""

_FRACTIONS = lazy_pattern(r"\\[dtc]frac(?![a-z])")
_NESTED = "\\boxed{" * 5
_QED = lazy_pattern(r"\s*\$?\s*\\(?:square|blacksquare|Box|qed|checkmark)\s*\$?\s*\Z")
_HOPE = lazy_pattern(r"\s*+I hope (?:it|this) is correct[.!]?\Z")
_ANNOTATION = lazy_pattern(r"<<[^<>]*+>>")
_MINUS = lazy_pattern(
    r"((?:\b(?:is|are|was|were|be|becomes?|equals?|to|gets?|gives?|obtain|find)\s+|[=:]\s*|\A)[*_]{0,3})(?:minus|negative)\s+"
    r"(\$|\\\(|\\\[)(?=[\s\d\\(a-zA-Z])",
    re.IGNORECASE,
)
_BETWEEN_DIGITS = lazy_pattern(r"(?<=\d)(?:\\[,;: ]|\s)+(?=\d)")
_ONE_IN_BRACES = lazy_pattern(r"(?<!\\)\{(\w)\}")
_SPACING = lazy_pattern(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[!,;: ]|\s+")


@dataclass(frozen=True, slots=True)
class Statement:
    """What a completion states as its answer."""

    text: str  # the statement, with the text before it where that helps to read it
    form: Form  # how it was marked
    parts: tuple[str, ...] = ()  # the contents of its boxes, or the one content of its block or line; none for prose


def statement(completion: str) -> Statement | None:
    """Finds the statement of the answer, or None when the completion is blank or ends in an empty block or box."""
    text = visible(completion.strip()[-_READ:]).strip()
    text = text if text.isascii() else text.translate(FULL_WIDTH | INVISIBLE)
    if "<<" in text:
        text = _ANNOTATION.sub("", text)
    text = without_end_tokens(text)
    if "I hope" in text[-40:]:
        text = text[:-40] + _HOPE.sub("", text[-40:])
    text = _MINUS.sub(r"\1\2-", text)
    if "\\" in text[-20:]:
        text = text[:-20] + _QED.sub("", text[-20:])
    split = reasoning_end(text)
    rest = text[split:].strip()
    return _statement(rest or text[:split]) if text else None


def gold_text(answer: object) -> str | None:
    """Returns the gold as text: what follows "####", stripped, else the text; None when there is nothing to compare."""
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return None
    if isinstance(answer, int) and answer.bit_length() > 13_000:
        return None
    text = str(answer).rpartition("####")[2].strip()
    return text if plain(text) else None


def plain(text: str) -> str:
    """Returns a statement without what never changes its meaning: spacing, dollar signs, one box around all."""
    text = text.strip().strip("$").strip().removesuffix(".")
    box = _BOX.match(text)
    if box and closing_brace(text, box.end()) == len(text) - 1:
        text = text[box.end() : -1]
    if "\\" in text:
        text = text.removeprefix("\\(").removesuffix("\\)").removeprefix("\\[").removesuffix("\\]")
        text = MARKUP.sub(r"\1", _FRACTIONS.sub(r"\\frac", text))
    text = _BETWEEN_DIGITS.sub("_", text.replace("$", ""))
    return _ONE_IN_BRACES.sub(r"\1", _SPACING.sub("", text)).removesuffix(".")


def closing_brace(text: str, start: int) -> int:
    """Returns where the brace that was opened before `start` closes, or -1 when it does not within `LONGEST`."""
    depth = 1
    for brace in _BRACE.finditer(text, start, start + LONGEST):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return -1


def _statement(part: str) -> Statement | None:
    """None where the last mark is empty and nothing follows it."""
    after, empty = len(part), False
    for mark in reversed(deque(_MARK.finditer(part), maxlen=_MARKS)):
        if mark["tag"]:
            content = part[mark.end() : after].strip()
            closing = _CLOSING.match(part, after)
            empty = empty or bool(closing and not (mark["close"] or content or part[closing.end() :].strip()))
            after = mark.start()
            if content and not mark["close"]:
                return _revision(part, part.find(content, mark.end()) + len(content)) or Statement(
                    content, "tag", (content,)
                )
        elif mark["line"] is not None:
            content = mark["line"].strip()
            heading = content[:1].isalpha() and part[mark.end() :].strip()
            if content and not heading:
                return _revision(part, mark.end()) or Statement(content, "hash", (content,))
        elif mark["final"]:
            if not empty and any(character.isalnum() for character in part[mark.end() : after]):
                return Statement(part[mark.start() : mark.start() + LONGEST], "sentence")
        else:
            boxed = _boxed(part, mark.end())
            end = closing_brace(part, mark.end())
            if boxed is not None:
                return _revision(part, max(end, mark.end()) + 1) or boxed
            empty = empty or not any(map(str.isalnum, part[max(end, mark.end()) :]))
    part = part[-LONGEST:]
    return None if empty else Statement(_without_tags(part), "prose")


def _revision(part: str, end: int) -> Statement | None:
    return Statement(_without_tags(part[end:][:LONGEST]), "prose") if revised(part[end:]) else None


def _without_tags(text: str) -> str:
    return _ANY_TAG.sub(" ", text) if "<" in text else text


def _boxed(part: str, start: int) -> Statement | None:
    """The box whose content begins there and those before it with nothing but joining words between."""
    end = closing_brace(part, start)
    if part.endswith(_NESTED, 0, start):
        return Statement("", "boxed", ("",))
    content = part[start:end] if end >= 0 else part[start : start + LONGEST + 1].split("\n", 1)[0]
    if not content.strip():
        return None
    parts = [content]
    first = -1
    boxes = [(box.start(), box.end()) for box in _BOX.finditer(part, max(0, start - LONGEST), start)][:-1]
    opening = part.rfind("\\", 0, start)
    for box_start, box_end in reversed(boxes):
        closing = closing_brace(part, box_end)
        if not 0 <= closing < opening or not _JOINT.fullmatch(part, closing + 1, opening):
            break
        opening = box_start
        if plain(part[box_end:closing]) != plain(parts[0]):  # the same answer twice is one answer
            parts.insert(0, part[box_end:closing])
            first = box_start
    stop = end + 1 if end >= 0 else start + len(content)
    tail = part[stop : stop + 40].split("\n", 1)[0]
    if first < 0:
        first = part.rfind("\\", 0, start)
    lead = part[max(0, first - 200) : first]
    lead = lead[lead.lower().rfind("final answer") + 1 :]
    return Statement(lead + part[first:stop] + tail, "boxed", tuple(parts))
