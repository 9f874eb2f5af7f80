"""Shrinks a text while it passes a test, by ddmin (Zeller and Hildebrandt, IEEE TSE 28, 2002) on complements alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Keeps = Callable[[Sequence[str]], Sequence[bool]]
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_WORDS = re.compile(r"\s+|\S+")
_TOKENS = re.compile(r"\s+|</?[\w.-]+>|\w+|[^\w\s]")
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The result of a search."""

    text: str  # the smallest text found
    calls: int  # how many texts were tried
    minimal: bool  # False when the calls ran out


class _Spent(Exception):
    """The calls ran out."""


class _Search:
    def __init__(self, text: str, keeps: Keeps, calls: int) -> None:
        self.text = text
        self.used = 0
        self._keeps = keeps
        self._calls = calls
        self._dropped: set[str] = set()

    def pass_over(self, split: Callable[[str], list[str]]) -> None:
        """Drops runs of units, halving their length down to single ones. Raises _Spent if the calls ran out."""
        units = split(self.text)
        size = max(1, len(units) // 2)
        while units:
            units = self._without_runs(units, size)
            if size == 1:
                break
            size = max(1, min(size // 2, len(units) // 2))

    def _without_runs(self, units: list[str], size: int) -> list[str]:
        start = 0
        while start < len(units):
            starts = range(start, min(len(units), start + size * _AT_ONCE), size)
            dropped = self._first(["".join(units[:at] + units[at + size :]) for at in starts])
            if dropped is None:
                start = starts[-1] + size
            else:
                start = starts[dropped]
                units = units[:start] + units[start + size :]
        return units

    def _first(self, candidates: list[str]) -> int | None:
        """Makes the first candidate that keeps the score the text; returns its number."""
        fresh = [n for n, text in enumerate(candidates) if text not in self._dropped and text != self.text]
        fresh = fresh[: self._calls - self.used]
        if not fresh and self.used >= self._calls:
            raise _Spent
        kept = self._keeps([candidates[n] for n in fresh]) if fresh else []
        self.used += len(fresh)
        for number, keeps in zip(fresh, kept, strict=True):
            if keeps:
                self.text = candidates[number]
                return number
            self._dropped.add(candidates[number])
        return None


def shrink(text: str, keeps: Keeps, *, calls: int = 2000) -> Shrunk:
    """Shrinks a text while `keeps` holds, trying at most `calls` texts."""
    search = _Search(text, keeps, calls)
    try:
        before = None
        while before != search.text:
            before = search.text
            for split in (_LINES.findall, _WORDS.findall, _TOKENS.findall, list):
                search.pass_over(split)
    except _Spent:
        return Shrunk(search.text, search.used, False)
    return Shrunk(search.text, search.used, True)
