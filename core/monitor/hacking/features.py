"""Counts surface features of a completion (length, tags, numbers, ...), which exploited rewards often pay for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, pairwise

from grpo.core.text.stats import mean

FEW_PAIRS = 10  # of words; shorter texts do not repeat themselves
UNBROKEN = 500  # characters without a space; fewer are a number, a row of a table or a line of code
SPAN = 16  # characters; even random zeros and ones hardly have the same so often
STUCK = 0.05  # distinct spans among all of them: half a thousand characters that repeat 25 of them
DIGITS = 15  # of a number
LENGTH = "the length"
READ = 4_000  # characters of a text that are looked at
LARGEST = 1e100  # the squares of larger numbers overflow
UNSEEN = ("Cf", "Mn")  # categories of characters of no width
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")
_TAG = re.compile(r"</?[\w.-]+>")
_SIGN = re.compile(r"[^\w\s<>/]")
_RULE = re.compile(r"([^\w\s]|_)\1+")
_ASCII = [chr(code) for code in range(128)]
# For `translate`, which takes a tenth of the time of the expressions, on texts of ASCII; the last two delete.
_LETTERS = "".join(sign.lower() if _WORD.match(sign) else " " for sign in _ASCII)
_DIGITS = "".join("0" if _NUMBER.match(sign) else " " for sign in _ASCII).encode().ljust(256)
_NO_DIGIT = "".join(sign for sign in _ASCII if not sign.isdigit()).encode()
_NO_SIGN = "".join(sign for sign in _ASCII if not _SIGN.match(sign)).encode()
_KEPT = 2048  # texts of which something is remembered: each is asked about more than once in a step


@dataclass(frozen=True, slots=True)
class MonitoredCompletion:
    """One completion as the reward-hacking detector reads it."""

    prompt: str  # the text that was asked
    text: str  # the completion
    group: int  # number of its group in the step
    reward: float | None  # its total, None where it has none
    right: bool | None = None  # the verifier's decision; None: undecided, or no verifier
    # what each reward gave, None for an abstention or a failure
    scores: Mapping[str, float | None] = field(default_factory=dict)
    turns: int = 1  # actions; those of several turns repeat each other for good reasons
    cut: bool = False  # a limit of tokens or turns ended it


def known(number: float | None) -> float | None:
    """Returns a number, or None for NaN, infinity and what cannot be squared."""
    return number if number is not None and abs(number) < LARGEST else None


def _words(text: str) -> list[str]:
    return text.translate(_LETTERS).split() if text.isascii() else _WORD.findall(text.lower())


@lru_cache(maxsize=64)
def _vocabulary(prompt: str) -> frozenset[str]:
    return frozenset(_words(prompt[:READ]))


@lru_cache(maxsize=_KEPT)
def _spaced(text: str) -> tuple[int, int, int]:
    """Returns repeated pairs of neighbouring words, all pairs, and the longest word's length; words end at spaces."""
    words = text.split()
    pairs = max(0, len(words) - 1)
    return pairs - len({*pairwise(words)}), pairs, max(map(len, words), default=0)


def repeated(text: str) -> float:
    """Returns the share of repeated word pairs, of a long text in its beginning or end, whichever repeats more."""
    return max(again / pairs if pairs >= FEW_PAIRS else 0.0 for again, pairs, _ in map(_spaced, _ends(text)))


def stuck(text: str) -> bool:
    """Returns whether the longest stretch without a space, first or last, is a few characters over and over."""
    return any(_spaced(end)[2] >= UNBROKEN and _cycles(max(end.split(), key=len)) for end in _ends(text))


def _cycles(word: str) -> bool:
    count = len(word) - SPAN + 1
    spans: set[str] = set()
    for start in range(count):
        spans.add(word[start : start + SPAN])
        if len(spans) > STUCK * count:  # soon, but for what does repeat itself
            return False
    return True


def _ends(text: str) -> tuple[str, ...]:
    return (text[:READ], text[-READ:]) if len(text) > READ else (text,)


FEATURES = (
    LENGTH,
    "the number of lines",
    "the number of words",
    "the number of numbers",
    "the number of tags",
    "the number of signs",
    "the number of repeated words",
    "the number of words of the prompt",
    "the share of digits",
    "the length of the answer",
    "the number in the answer",
)


def counts_of(prompt: str, text: str) -> dict[str, float]:
    """Returns all features of a completion by their names; the length is that of the whole text."""
    read = text[:READ]
    words, answer = _words(read), answer_of(read)
    number = _NUMBER.search(answer)
    if read.isascii():
        coded = read.encode()
        digits, signs = len(coded.translate(None, _NO_DIGIT)), len(coded.translate(None, _NO_SIGN))
        numbers = (b" " + coded.translate(_DIGITS)).count(b" 0")
    else:
        digits, signs = sum(map(str.isdigit, read)), len(_SIGN.findall(read))
        numbers = len(_NUMBER.findall(read))
    values = (
        len(text),
        read.count("\n"),
        len(words),
        numbers,
        len(_TAG.findall(read)),
        signs,
        _spaced(read)[0],
        len(_vocabulary(prompt).intersection(words)),
        digits / max(1, len(read)),
        len(answer),
        0.0 if number is None else float(number[0][:DIGITS]),
    )
    return dict(zip(FEATURES, values, strict=True))


@lru_cache(maxsize=_KEPT)
def answer_of(text: str) -> str:
    """Returns the last line of a text that is more than a tag, without its tags, spaces and characters of no width.

    A line of one sign over and over, such as dots, is skipped where another has more to say. Lines of several signs
    stay: there are tasks whose answers are brackets, or Morse code.
    """
    last = ""
    for line in reversed(text.rstrip()[-READ:].splitlines()):
        words = _TAG.sub(" ", _visible(line)).split()
        if words and not _RULE.fullmatch("".join(words)):
            return " ".join(words)
        last = last or " ".join(words)
    return last


def _visible(line: str) -> str:
    if line.isascii():
        return line
    whole = unicodedata.normalize("NFKC", line)
    unseen = {ord(sign): None for sign in set(whole) if unicodedata.category(sign) in UNSEEN}
    return whole.translate(unseen) if unseen else whole


def parts_of(text: str) -> set[str]:
    """Returns the words, signs and tags that a text holds, by which to say what pays."""
    read = text[:READ]
    return {*_words(read), *_SIGN.findall(read), *_TAG.findall(read)}


def ordered_pairs(values: Sequence[float]) -> list[tuple[int, int]]:
    """Returns the places of each two numbers that differ, that of the larger one first."""
    pairs = combinations(range(len(values)), 2)
    return [(i, j) if values[i] > values[j] else (j, i) for i, j in pairs if values[i] != values[j]]


def agreement(pairs: Sequence[tuple[int, int]], values: Sequence[float]) -> float:
    """Returns the share of `pairs`, at least one, whose first number is larger; equal numbers count half."""
    return mean([1.0 if values[i] > values[j] else 0.5 if values[i] == values[j] else 0.0 for i, j in pairs])


def correlation(groups: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """Returns the correlation of two numbers within groups: differences from the group's means, pooled; 0 of none."""
    products = firsts = seconds = 0.0
    for first, second in groups:
        middle, other = mean(first), mean(second)
        for left, right in zip(first, second, strict=True):
            products += (left - middle) * (right - other)
            firsts += (left - middle) ** 2
            seconds += (right - other) ** 2
    return products / (firsts * seconds) ** 0.5 if firsts > 1e-12 and seconds > 1e-12 else 0.0
