"""Marks the answer that unmarked prose states.

"The answer is x^2+1.", "**Answer:** (1, 2)", "Respuesta: 2√3" and a last sentence such as "So the area is 25π." all
name an answer behind a cue. Mathematics alone there counts as if marked, without a reason or remark behind it ("because
...", "(by Pythagoras)"). Prose that says more is left to others.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.answer_text import text_after_answer
from grpo.rewards.math.answer import Statement
from grpo.rewards.math.ascii import NAMES, latex_of
from grpo.rewards.math.claim import claim
from grpo.rewards.math.guard import LONGEST
from grpo.rewards.math.normalize import known_words
from grpo.rewards.numbers.hedges import ASSUMED, revised
from grpo.rewards.numbers.quantity import unit

_LONGEST = 400
_CUES = 8
_FEW = 4
_NOUN = (
    r"(?<![^\W_])(?:answers?|ans\b\.?|solutions?|results?|respuesta|antwort|l\u00f6sung|r\u00e9ponse|risposta|resposta"
    r"|\u043e\u0442\u0432\u0435\u0442)(?![^\W_])|\u7b54\u6848|\u7b54\u3048|\u7b54(?=[:\uff1a])|\uc815\ub2f5"
)
_VERB = (
    r"(?:\b(?:is|are|was|be|equals?|es|son|ist|est|sont|\u00e9|\u00e8|sono)\b|[:=\uff1a\u2013\u2014]|\s-(?=\s)"
    r"|[\u662f\u4e3a\u70ba\u306f\uc740\ub294]|(?<=ans\.)(?=\s))"
)
_ADVERB = r"(?:\s*\b(?:equal to|therefore|then|thus|simply|just|exactly|indeed|approximately|about|roughly)\b)*"
_CUE = lazy_pattern(
    rf"(?:{_NOUN})(?:[^\n\d.?!:=\uff1a]{{0,60}}?|\s{{1,3}}){_VERB}{_ADVERB}\s{{0,3}}[:\uff1a]?"
    rf"|(?:{_NOUN})[^\w\n]{{0,8}}\n|(?:^[ \t>*]{{0,8}}|(?<=\?)[ \t]{{1,3}})(?P<letter>A):",
    re.IGNORECASE | re.MULTILINE,
)
_CHOICES = lazy_pattern(r"^[ \t>*]{0,8}B:", re.MULTILINE)
_IS = lazy_pattern(
    r"\b(?:is|are|was|were|be|becomes?|(?:will|would)(?!\s+be\b))\b|\b(?:it|that|this)['\u2019]s\b", re.IGNORECASE
)
_SUBJECT = lazy_pattern(
    r"([A-Z][^\W\d_]+(?:\s[A-Z][^\W\d_]+)?)\s+(?:has|had|is|was|will|would|won|wins|can|did|does|gets?|got|should)\b[^A-Z.!?]*"
)
_NO_ANSWER = lazy_pattern(
    r"\s+(?:is|was|would\s+be)\s+(?:(?:also|just|still|[a-z]+ly)\s+){0,2}(?:wrong|incorrect|false|mistaken|likely|plausible|probable"
    r"|doubtful|out\b|a\s+(?:guess|mistake|wrong\b))",
    re.IGNORECASE,
)
_NAMED = lazy_pattern(
    r"(?:(?:(?:most|very|highly)\s+)?(?:likely|probably|definitely|certainly|clearly|indeed|therefore|thus|called|named"
    r"|always|also|simply|just|actually|known\s+as|referred\s+to\s+as)|[a-z]+(?:ed|en|wn|de|lt|ng|on)\s+by)\b[\s,]*",
    re.IGNORECASE,
)
_CLAUSE = lazy_pattern(
    r",\s+|\b(?:if\s+and\s+only\s+if|iff|such\s+that|precisely\s+when|exactly\s+when)\s+", re.IGNORECASE
)
_RELATED = lazy_pattern(r"[=<>\u2264\u2265\u2208]")
_COPULA = lazy_pattern(
    r"(?:\b(?:(?:is|lies?|belongs?|be)\s+(?:in|to)(?:\s+the\s+(?:interval|set))?|is|are|was|equals?|becomes?|be|(?:simplif(?:y|ies)|reduces?|comes?|amounts?|evaluates?)\s+to|takes?|gets?|gives?|obtain|yields?|have|has|find|conclude|(?:arrive|start|begin|end|finish|leave|depart|return|land|open|close|meet)s?\s+at|(?:at|is|are)\s+(?:the\s+)?points?)\b|[:\uff1a]|\u89e3\u5f97|\u53ef\u5f97|\u5f97\u5230?|\u7b49\u4e8e|[\u4e3a\u70ba\u662f])"
    rf"(?:\s+(?:us|that|to)\b)?{_ADVERB}\s*:?",
    re.IGNORECASE,
)
_NAMED_BEFORE = lazy_pattern(
    r"([^.?!]{1,300}?)\s+is\s+(?:therefore\s+|thus\s+|then\s+|indeed\s+)?(?:the|my|our)\s+(?:(?:final|correct|right|only)\s+){0,2}"
    r"(?:answer|solution|result)",
    re.IGNORECASE,
)
_BACK = lazy_pattern(
    r"\A(?:\W*\b(?:wait|no|actually|sorry|oops|correction|rather|hmm+)\b)+[\s,.:;!\u2014-]*", re.IGNORECASE
)
_LEAD = lazy_pattern(
    r"\s*(?:=\s*|(?:so|thus|therefore|hence|then|finally|and|we (?:get|have|find|obtain))\b[,:]?\s*)+", re.IGNORECASE
)
_REFUSED = lazy_pattern(
    r"\b(?:not|never|cannot|neither|nor|hardly|unlikely|if|suppose|assume|assuming|unless|whether|possible|candidates?"
    r"|options?|choices?|either|between|maybe|perhaps|possibly|probably|guess|(?:might|may|could)\s+(?:[a-z]+\s+)?be)\b"
    r"|n['\u2019]t\b|\u4e0d",
    re.IGNORECASE,
)
_RETRACTED = lazy_pattern(
    r"\b(?:wait|actually|correction|mistaken?|oops|hmm|alternatively|not sure)\b"
    r"|\b(?:is|was|be)\s+(?:wrong|incorrect|false)"
    r"|(?:\A|[.!?\n])[\s*_]*(?:or|maybe|perhaps|possibly|no(?!\s+(?!wait\b|it\b|that\b|the\b)[a-z])|rather|unless|but)\b",
    re.IGNORECASE,
)
_HEDGE = lazy_pattern(
    r"\b(?:or|maybe|perhaps|possibly|alternatively|could|might|may|otherwise|unless|either)\b", re.IGNORECASE
)
_TAIL = lazy_pattern(
    r"[,;]?\s+(?:because|since|as|where|so|not|rather|meaning|given|in(?!\s+base)|of|after|namely|thanks|per"
    r"|for\s+(?:all|any|every|each|some)|if\s+and\s+only)\b"
    r"|\s+[\u2013\u2014-]\s+(?=[^\W\d_]{3})|,\s+(?=(?:and|but|we|the|this|that|it)\s)",
    re.IGNORECASE,
)
_ALSO = lazy_pattern(
    r",?\s+(?:which|that)\s+(?:is|equals|simplifies\s+to|reduces\s+to|gives|comes\s+to)\s+"
    r"(?:(?:equal|equivalent)\s+to\s+|the\s+same\s+as\s+|just\s+|simply\s+)?",
    re.IGNORECASE,
)
_CONTRAST = lazy_pattern(r",\s+(?:and\s+)?not\s+[^,;:]{1,80}\Z", re.IGNORECASE)
_REMARK = lazy_pattern(
    r",?\s+(?:because|since|as(?!\s+well)|which|who|where|so)\b|,\s+(?=(?:the|an?|not|in|it)\s)|\s\((?=[^()]*\)\Z)",
    re.IGNORECASE,
)
_EITHER = lazy_pattern(r"(?:yes|no|true|false)\b", re.IGNORECASE)
_ROUGH = lazy_pattern(r"\s*(?:approximately|about|roughly|around|\u2248)", re.IGNORECASE)
_ASIDE = lazy_pattern(
    r"\s\((?!\s*(?:or|maybe|perhaps|possibly|in\s+base|base)\b)(?=[^()]*[^\W\d_]{2})[^()]*\)\s*\Z", re.IGNORECASE
)
_SENTENCE_END = lazy_pattern(r"(?<=[.!?])[*_)\"'`]{0,4}\s+(?=[^\W\d_]|\$|\\|\*)|(?<=[\u3002\uff01\uff1f])")
_COURTESY = lazy_pattern(
    r"\b(?:hope|let me know|feel free|questions|completes|done|verified|help|thank)\b|\A[\s*_#-]*\Z", re.IGNORECASE
)
_WORD = lazy_pattern(r"\\?[^\W\d_]+")
_SYMBOLS = frozenset(
    "+-*/^=<>|!,;:()[]{}.%'_&~ \n"
    "\u2212\u00b1\u2213\u00d7\u00b7\u22c5\u00f7\u2264\u2265\u2260\u221a\u221b\u221e\u222a\u2229\u2208"
    "\u2205\u00b0\u2026\u2248\u2032\u0304\u0305\u211d\u2124\u2115\u211a\\\u20ac\u00a3\u00a5\u20b9\u00a0\u2009\u202f\u2044\u2215"
)
_OPERANDS = frozenset("\u221e\u2205\u211d\u2124\u2115\u211a")
_FUNCTIONS = frozenset(("sqrt", "cbrt", "cuberoot", "abs", "mod"))
_SHORT_WORDS = (
    "add age all am an any are as at bad be big box boy but by can car cat day did dna do dog due few fit for fri "
    "get got had has he her him his how if in is it its let man may me men mon my na new nil no not now odd of "
    "off old on one our out own put red sat see set she six so sum sun tbd ten the thu tie to too tue two up us "
    "usa use via was way we wed who why win yes yet you "
)
_COMMON = frozenset(_SHORT_WORDS.split())
_UNIT = lazy_pattern(
    r"(?P<size>.*?[\w)\]}\u03c0])\s*(?P<unit>(?<![^\W\d_])(?:(?:square|cubic|sq\.?|cu\.?)\s+)?(?:units?|[A-Za-z]{1,12})"
    r"(?:\s?(?:/|per\b|[\u00b7*])\s?[A-Za-z]{1,12})?(?:\s?\^?[23\u00b2\u00b3])?)\s*",
    re.DOTALL,
)
_UNITS = lazy_pattern(r"(?:(?:square|cubic|sq\.?|cu\.?)\s+)?units?(?:\s?\^?[23\u00b2\u00b3])?", re.IGNORECASE)
_RAISED_UNIT = lazy_pattern(r"(?:(s)q(?:uare|\.)?|(c)u(?:bic|\.)?)\s+", re.IGNORECASE)
_IN_BASE = lazy_pattern(r"\s+in\s+base\s+", re.IGNORECASE)
_RAISED = lazy_pattern("[\u00b2\u00b3\u00b9\u2070-\u207c\u207f-\u208e]")
_ENVIRONMENT = lazy_pattern(r"\\(?:begin|end)\{[a-z]+\*?\}")
_PRICE = lazy_pattern(r"-?\\?\$\s?\d[\d,]*(?:\.\d+)?")
_PLAIN_SIZE = lazy_pattern(r"[-+\u2212]?[\d.,\s/]+")
_FENCE = lazy_pattern(r"```\w*\s*\Z")


def behind_cue(prediction: Statement, gold: str) -> Statement:
    """Returns a statement in prose with the mathematics behind its cue as its one marked content; else unchanged."""
    if prediction.parts:
        return prediction
    for sentence, named in _sentences(prediction):
        content = _mathematics(sentence.removesuffix("!") if "!" not in gold else sentence, remarks=named)
        if content is not None:
            return replace(prediction, text=content, parts=(content,))
    return prediction


def last_words(prediction: Statement) -> tuple[str, ...]:
    """Returns what the last sentence of prose says that something is: "an ellipse" in "The graph is an ellipse.".

    Also what a colon ends in ("so the day is two days later: Tuesday"), and what is contrasted ("Tuesday, not Monday").
    """
    last = _stripped(_CONTRAST.sub("", _last(prediction), count=1))
    if prediction.parts or last.endswith("?") or _refused(last) or _HEDGE.search(last):
        return ()
    verbs = list(_IS.finditer(last))
    colon = last.rfind(":") + 1
    start = colon or (verbs[0].end() if len(verbs) == 1 else len(last))
    predicate = _NAMED.sub("", last[start:].strip(" *_:!"), count=1).strip(" *_:\"'")
    opening = _LEAD.match(last)
    subject = _SUBJECT.fullmatch(last[opening.end() :] if opening else last)
    denied = subject is not None and _NO_ANSWER.match(subject.string, subject.end(1))
    named = (subject[1],) if subject and not denied else ()
    return named if not predicate or len(predicate.split()) > _FEW else (predicate, *named)


def words_behind_cue(text: str) -> tuple[str, ...]:
    """Returns the sentence behind the last cue, and it without a remark ("Paris, the capital of France").

    Empty without a cue, and where what follows takes the answer back.
    """
    for lead, sentence, after in _cued(text):
        if _taken_back(after) or _refused(lead) or sentence.endswith("?"):
            return ()
        remark = next((match for match in _REMARK.finditer(sentence) if match.start() > 0), None)
        short = remark is not None and not (_HEDGE.search(sentence, remark.start()) or _EITHER.match(sentence))
        return (sentence, sentence[: remark.start()]) if remark is not None and short else (sentence,)
    return ()


def correction(completion: str) -> str | None:
    """Returns what follows an explicit answer and takes it back, without the "No," before it; else None."""
    after = text_after_answer(completion)
    return _BACK.sub("", after, count=1) if _taken_back(after) else None


def _taken_back(after: str) -> bool:
    return _RETRACTED.search(after[:_LONGEST]) is not None or revised(after[:_LONGEST])


def _refused(lead: str) -> bool:
    return bool(_REFUSED.search(lead) or ASSUMED.search(lead))


def _sentences(prediction: Statement) -> Iterator[tuple[str, bool]]:
    """Yields candidates, the likeliest first, and whether a word for the answer precedes them."""
    text = prediction.text
    for lead, sentence, after in _cued(text):
        if _taken_back(after):
            return
        if not _refused(lead):
            yield sentence, True
        if any(character.isdigit() for character in sentence) or _RETRACTED.search(sentence):
            break
    last = _last(prediction)
    named = _NAMED_BEFORE.fullmatch(last)
    if named is not None and not _refused(named[1]):
        opening = _LEAD.match(named[1])
        yield _stripped(named[1][opening.end() :] if opening else named[1]), True
    if last.endswith("?") or "$" in last or "\\(" in last or "\\[" in last:
        return
    opening = _LEAD.match(last)
    yield _stripped(last[opening.end() :]) if opening else last, False
    for part in _CLAUSE.split(last)[1:]:
        opening = _LEAD.match(part)
        clause = _stripped(part[opening.end() :] if opening else part)
        if _RELATED.search(part) or (known_words(clause) is not None and not _REFUSED.search(last.partition(part)[0])):
            yield clause, False
    for copula in _COPULA.finditer(last):
        if _REFUSED.search(last, 0, copula.end()):
            return
        yield _stripped(last[copula.end() :]), False


@lru_cache(maxsize=8)  # a text is asked for its cues several times while it is judged
def _last_cues(text: str) -> tuple[re.Match[str], ...]:
    return tuple(reversed(deque(_CUE.finditer(text), maxlen=_CUES)))


def _cued(text: str) -> Iterator[tuple[str, str, str]]:
    """For each of the last cues, from the last: words before and in it, the sentence behind it, what follows."""
    text = text[-LONGEST:]
    for cue in _last_cues(text):
        if cue["letter"] and _CHOICES.search(text, cue.end()):
            continue
        start = max(text.rfind(mark, 0, cue.start()) for mark in (".", "\n", "?", "!"))
        rest = text[cue.end() :].lstrip("*_` \t\n>#~\u2248\uff1a:")
        if text[cue.end() :].lstrip("*_ \t\n").startswith("```"):
            rest = rest.partition("\n")[2].lstrip() if _FENCE.match(rest.partition("\n")[0]) else rest
        line = rest.partition("\n")[0]
        if line.strip() in ("\\[", "$$", "\\("):
            line = rest[:_LONGEST]
        sentence = _SENTENCE_END.split(line[: 4 * _LONGEST], maxsplit=1)[0]
        if sentence.strip():
            yield text[start + 1 : cue.end()], _stripped(sentence), rest[len(sentence) :]


def _last(prediction: Statement) -> str:
    sentences = [
        sentence
        for line in prediction.text[-2 * _LONGEST :].split("\n")[-4:]
        for sentence in _SENTENCE_END.split(line)
        if not _FENCE.match(sentence)
    ]
    while len(sentences) > 1 and _COURTESY.search(sentences[-1]) and not re.search(r"\d", sentences[-1]):
        sentences.pop()
    return _stripped(sentences[-1]) if sentences else claim(prediction)


def _stripped(sentence: str) -> str:
    sentence = sentence.strip('*_` \t\n>#"\u201c\u201d\u2713\u2705\u220e\u25a1\u25a0\u3002\uff01,;')
    if sentence.endswith("...."):
        return sentence[:-1]
    sentence = sentence if sentence.endswith("...") else sentence.removesuffix(".")
    return sentence.rstrip("*_` \t,;")


def _mathematics(text: str, *, remarks: bool) -> str | None:
    """None for anything but mathematics; `remarks`: without what explains it."""
    if text and _PRICE.fullmatch(text):
        return text
    if not text or len(text) > _LONGEST or "$" in text or "\\(" in text or "\\[" in text:
        return None
    text = _IN_BASE.sub(" base ", _ASIDE.sub("", text))
    measured = _measured(text)
    if measured is not None:
        return measured
    if _formal(text):
        return _listed(text)
    if known_words(text) is not None:
        return text
    if not remarks:
        return None
    also = _ALSO.search(text)
    if also is not None:
        first, second = (_mathematics(part, remarks=True) for part in (text[: also.start()], text[also.end() :]))
        if first is not None and _ROUGH.match(text, also.end()):
            return first
        return f"{first} = {second}" if first is not None and second is not None else None
    for tail in _TAIL.finditer(text):
        head = text[: tail.start()]
        formula = _measured(head) or (_listed(head) if _formal(head) else None)
        if formula is not None:
            return None if _HEDGE.search(text, tail.start()) else formula
    return None


def _measured(text: str) -> str | None:
    """The number and its unit as they stand, or an expression with its unit set in LaTeX."""
    match = _UNIT.fullmatch(text)
    if match is None or not _formal(match["size"]):
        return None
    known = unit(f"1 {match['unit']}") is not None or _UNITS.fullmatch(match["unit"]) is not None
    if not known or (len(match["unit"]) == 1 and not text[: match.start("unit")].endswith(" ")):
        return None
    if _PLAIN_SIZE.fullmatch(match["size"].rpartition("=")[2]):
        return text.rpartition("=")[2].strip()
    if len(match["unit"]) == 1:
        return None
    raised = _RAISED_UNIT.match(match["unit"])
    power = f"^{2 if raised[1] else 3}" if raised else ""
    name = match["unit"][raised.end() :] if raised else match["unit"]
    return latex_of(match["size"]) + ("" if _UNITS.fullmatch(name) else f"\\text{{ {name}}}{power}")


def _formal(text: str) -> bool:
    text = _RAISED.sub("1", _ENVIRONMENT.sub(" ", text))
    if text.count("{") != text.count("}"):
        return False
    rest = _WORD.sub(" ", text)
    if not all(c.isdigit() or c in _SYMBOLS or c.isnumeric() for c in rest):
        return False
    words = [word for word in _WORD.findall(text) if word.lower() not in ("and", "or", "to", "base")]
    if not words and not any(c.isnumeric() or c in _OPERANDS for c in text):
        return False
    if re.match(r"\s*(?:and|or|to|base)\b|.*\b(?:and|or|to|base)\s*\Z", text, re.DOTALL | re.IGNORECASE):
        return False
    return all(map(_name, words))


def _name(word: str) -> bool:
    if word.startswith("\\") or len(word) == 1 or word in NAMES or word.lower() in _FUNCTIONS:
        return True
    if len(word) == 3 and word.istitle() and word.lower() not in NAMES:
        return False
    if not word.isascii():
        return all("\u0370" <= c <= "\u03ff" for c in word)
    return len(word) <= 3 and word.lower() not in _COMMON


def _listed(text: str) -> str:
    return re.sub(r"\s*,?\s+and\s+(?=[-+\u2212(\d\\\[{\u00b1\u221aA-Za-z])", ", ", text)
