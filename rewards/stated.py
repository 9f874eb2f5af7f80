"""Where a completion states its answer when that is no number: text in, the stated text out."""

from __future__ import annotations

import re

_READ = 200_000
_REASONING_ENDS = ("</think>", "</thinking>", "</reasoning>", "<end_working_out>")
_OPENING = re.compile(r"<(answer|solution)\b[^<>\n]{0,80}>|\\f?boxed\s?\{", re.IGNORECASE)


def stated_answer(completion: str) -> str | None:
    """Returns the last explicit answer (`<answer>`, `<SOLUTION>` or `\\boxed{}`, closed or not), stripped.

    What follows the reasoning is read; the reasoning itself only when nothing follows it. Without an explicit form the
    last line that is not blank is returned, and None when there is none. Of very long texts the last 200,000
    characters are read.
    """
    text = completion.strip()[-_READ:]
    split = max((text.rfind(end) + len(end) for end in _REASONING_ENDS if end in text), default=0)
    for part in (text[split:], text[:split]):
        found = _explicit(part)
        if found is not None:
            return found
    return (text[split:].strip() or text[:split].strip()).rpartition("\n")[2].strip() or None


def _explicit(text: str) -> str | None:
    """Returns what the last opening that something follows opens."""
    end = len(text)
    for mark in reversed(list(_OPENING.finditer(text))):
        inside = text[mark.end() : end]
        content = (_to_brace(inside) if mark[1] is None else _to_closing(inside, mark[1])).strip()
        if content:
            return content
        end = mark.start()
    return None


def _to_closing(inside: str, tag: str) -> str:
    closing = re.search(rf"</{tag}\s*>", inside, re.IGNORECASE)
    return inside[: closing.start()] if closing else inside


def _to_brace(inside: str) -> str:
    depth = 1
    for brace in re.finditer(r"[{}]", inside):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return inside[: brace.start()]
    return inside
