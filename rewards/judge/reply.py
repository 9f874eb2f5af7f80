"""Parses the LLM judge's reply strictly: anything but the requested object is an error."""

from __future__ import annotations

import json
import re
from typing import Any

from grpo.plugins.errors import GrpoError
from grpo.rewards.answer_text import shortened

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n```", re.DOTALL)
_KEYS = {"mark", "reasoning", "points"}


class JudgeError(GrpoError):
    """The judge gave no usable verdict; the completion is masked."""


def read_points(reply: object, mark: str, points: int) -> int:
    """Returns the points of a reply; raises JudgeError if it is anything but the JSON object that was asked for.

    Alone or in a code fence, it has exactly the keys mark, reasoning and points, each once; the mark is the question's,
    and the points a whole number in range.
    """
    if not isinstance(reply, str) or not reply.strip():
        raise JudgeError("the judge's reply is empty.")
    text = reply.strip()
    shown = repr(shortened(text))
    fenced = _FENCED.fullmatch(text)
    try:
        verdict = json.loads(fenced[1] if fenced else text, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise JudgeError(f"the judge's reply is not one JSON object ({error}): {shown}") from None
    if not isinstance(verdict, dict) or set(verdict) != _KEYS:
        raise JudgeError(f"the judge's reply is not an object with the keys mark, reasoning and points: {shown}")
    if verdict["mark"] != mark:
        raise JudgeError(f"the judge's reply lacks the mark of its question, so it may be a copy: {shown}")
    given = verdict["points"]
    if type(given) is not int or not 0 <= given <= points:
        raise JudgeError(f"the judge's points are no whole number from 0 to {points}: {shortened(repr(given))!r}")
    if not isinstance(verdict["reasoning"], str):
        raise JudgeError(f"the judge's reasoning is not text: {shown}")
    return given


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key occurs twice")
    return fields


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
