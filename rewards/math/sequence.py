r"""Compares sequences that dots shorten: `1, 3, \ldots, 2n-1` with `1, 3, 5, \ldots, 2n-1`, where `math_equal` runs.

Terms that only one shows have to go on as the others do: by equal steps, equal ratios, or as the general term says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.rewards.math.claim import result
from grpo.rewards.math.points import same_at_points

_DOTS = re.compile(r"(?:\\(?:ldots|cdots|dots[bcmio]?)(?![a-zA-Z])|\u2026|\.{3,})")
_BRACKETED = re.compile(
    r"(?:\\left\s?)?(?P<open>\\\{|[(\[])(?P<items>.*?)(?:\\right\s?)?(?P<close>\\\}|[)\]])", re.DOTALL
)
_NAMED = re.compile(r"[A-Za-z]\w{0,2}\s*\\in(?![a-z])\s*")
_MOST = 200


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms before and behind the dots, as sympy objects; `kind`: the bracket around them, and what parts them."""

    kind: str
    head: list[Any]
    tail: list[Any]


def same_sequence(gold: str, text: str, read: Callable[[str], Sequence[Any]]) -> bool | None:
    """Whether two texts are the same sequence, None where neither has dots between its terms."""
    pieces = _pieces(gold), _pieces(text)
    if not any(_DOTS.fullmatch(piece) for _kind, items in pieces for piece in items):
        return None
    wanted, given = (_terms(kind, items, read) for kind, items in pieces)
    if wanted is None or given is None or wanted.kind != given.kind:
        return False
    if bool(wanted.tail) != bool(given.tail):
        short, whole = (wanted, given) if wanted.tail else (given, wanted)
        return _DOTS.search(gold + text) is not None and not whole.tail and _spelt_out(short, whole)
    return _alike(wanted.head, given.head, wanted.tail or given.tail) and _alike(
        wanted.tail[::-1], given.tail[::-1], []
    )


def _pieces(text: str) -> tuple[str, list[str]]:
    text = _NAMED.sub("", result(text), count=1).strip()
    bracketed = _BRACKETED.fullmatch(text)
    kind, text = (bracketed["open"], bracketed["items"]) if bracketed else ("", text)
    mark = "," if "," in text else "+"
    pieces, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == mark and depth == 0:
            pieces.append(text[start:at].strip())
            start = at + 1
    return kind + mark, [*pieces, text[start:].strip()]


def _terms(kind: str, pieces: list[str], read: Callable[[str], Sequence[Any]]) -> _Terms | None:
    dots = [at for at, piece in enumerate(pieces) if _DOTS.fullmatch(piece)]
    if len(dots) > 1 or len(pieces) > _MOST:
        return None
    values = [
        next((value for value in read(piece) if not isinstance(value, str)), None)
        for piece in pieces
        if not _DOTS.fullmatch(piece)
    ]
    at = dots[0] if dots else len(values)
    return None if None in values or not at else _Terms(kind, values[:at], values[at:])


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) or same_at_points(left, right) is True


def _alike(left: list[Any], right: list[Any], tail: list[Any]) -> bool:
    """Whether two heads agree as far as both go, and the longer one goes on as the shorter one."""
    short, long = sorted((left, right), key=len)
    if not all(map(_same, short, long)):
        return False
    return len(short) == len(long) or any(
        rule is not None and all(_same(rule(at), term) for at, term in enumerate(long)) for rule in _rules(short, tail)
    )


def _rules(head: list[Any], tail: list[Any]) -> list[Callable[[int], Any] | None]:
    rules: list[Callable[[int], Any] | None] = []
    if len(head) > 1:
        first, step = head[0], head[1] - head[0]
        rules.append(lambda at: first + at * step)
        if head[0] != 0:
            rules.append(lambda at: first * (head[1] / first) ** at)
    last = tail[-1] if tail else None
    variables = getattr(last, "free_symbols", ())
    if last is not None and len(variables) == 1:
        variable = next(iter(variables))
        rules += [lambda at, from_=from_: last.subs(variable, at + from_) for from_ in (0, 1)]  # type: ignore[misc]
    return [rule for rule in rules if rule is not None and all(_same(rule(at), term) for at, term in enumerate(head))]


def _spelt_out(short: _Terms, whole: _Terms) -> bool:
    count = len(whole.head)
    if count < len(short.head) + len(short.tail):
        return False
    ends = whole.head[count - len(short.tail) :]
    goes_on = _alike(short.head, whole.head, short.tail)
    return goes_on and all(map(_same, short.tail, ends))
