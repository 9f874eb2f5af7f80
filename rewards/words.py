"""Normalises answers in words: without case, punctuation and articles."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.numbers.numerals import INVISIBLE

_ARTICLES = lazy_pattern(r"\b(?:a|an|the)\b")
_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
_ORDINAL = lazy_pattern(r"\b([1-9]|1[0-2])(?:st|nd|rd|th)\b")
_NAMED = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ORDINALS = _NAMED.split()
_APOSTROPHE = lazy_pattern("(?<=\\w)['\u2019](?=\\w)")
_ASKED = lazy_pattern(r"[?\uff1f][\s!)\]}$*_\"'\u201d.]*\Z")
_DENIED = lazy_pattern(r"[\s({\[\"'*_$]*(!=?|\u00ac|\u2260|~(?!~)|\\(?:neg|lnot|not|neq?)(?![a-z]))\s*\w")
_MARKS = lazy_pattern(r"[^\w\s]|_")


def normal(text: str) -> str:
    """Returns a text in lower case, without punctuation and articles, its words parted by single blanks.

    This is the normalisation of the SQuAD metric (Rajpurkar et al., https://arxiv.org/abs/1606.05250), after Unicode's
    NFKC (full-width letters become plain), without zero-width characters. It keeps a minus sign or decimal point inside
    a number, and an A that is all there is: a choice and no article.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(INVISIBLE))
    kept = _MARKS.sub(lambda match: match[0] if _belongs(match) else " ", _APOSTROPHE.sub("", text.lower())).split()
    return "a" if kept == ["a"] else " ".join(_ARTICLES.sub(" ", " ".join(kept)).split())


def says(text: str, gold: str) -> bool:
    """Returns whether words are the same, or begin "Yes, ..." for the gold yes, without its opposite or an "or"."""
    if not is_stated(text, gold):
        return False
    words, wanted = (_ORDINAL.sub(lambda match: _ORDINALS[int(match[1]) - 1], normal(part)) for part in (text, gold))
    other = _OPPOSITES.get(wanted)
    if words == wanted or other is None:
        return words == wanted
    leads = re.match(rf"\W*{wanted}\s*[,.;:!\u2013\u2014]", text, re.IGNORECASE)
    against = {other, "or", "not"} if wanted in ("yes", "true") else {other, "or"}
    return leads is not None and not against & set(words.split())


def is_stated(text: str, gold: str) -> bool:
    """Returns whether a text neither asks nor denies by a sign that the gold lacks: "Paris?", "!Paris"."""
    asked = _ASKED.search(text) is not None and "?" not in gold and "\uff1f" not in gold
    denied = _DENIED.match(text)
    return not asked and (denied is None or gold.strip().startswith(denied[1]))


def overlap(text: str, gold: str) -> float:
    """Returns the F1 score of two texts: 2 x shared words / words of both, in normal form, 0 to 1."""
    words, golds = Counter(normal(text).split()), Counter(normal(gold).split())
    if not words or not golds:
        return float(words == golds)
    return 2 * (words & golds).total() / (words.total() + golds.total())


def _belongs(match: re.Match[str]) -> bool:
    text, start, end = match.string, match.start(), match.end()
    digit = end < len(text) and text[end].isdigit()
    before = text[start - 1] if start else " "
    return digit and ((match[0] == "." and before.isdigit()) or (match[0] == "-" and not before.isalnum()))
