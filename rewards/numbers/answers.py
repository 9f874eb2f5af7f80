"""Reads the final number of a completion as an `Answer`, and the gold number of a dataset row.

The reasoning is read only when nothing follows it. The last explicit form wins (`<answer>`, `<SOLUTION>`, `\\boxed{}`,
`#### 72`), then "the answer is ...", then the last sentence with a number. Linear in the text, of which the last
200,000 characters are read. A call of a tool (`<tool_call>`) is no answer, also one that nothing could read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.answer_text import reasoning_end, shortened, to_brace, visible
from grpo.rewards.numbers.adjuncts import main_clause
from grpo.rewards.numbers.factors import changed
from grpo.rewards.numbers.hedges import (
    REJECTED,
    SUPPOSED,
    SUSPECT,
    UNKNOWN,
    doubtful,
    guessed,
    revised,
    rivals,
    stated_from,
    wavers,
)
from grpo.rewards.numbers.labels import labelled
from grpo.rewards.numbers.numerals import DIGITS, Number, distance, is_exact, numbers_in, plain_text, read_number
from grpo.rewards.numbers.readings import one_quantity
from grpo.rewards.numbers.words import counted, spoken_number

Form = Literal["tag", "boxed", "hash", "sentence", "prose"]

_READ = 200_000
_LONGEST = 4000
_CUES = 8
_SIDE = 60
_REACH = 160
_CALL = lazy_pattern(r"<tool_call>.*?(?:</tool_call>|(?=<answer>)|\Z)", re.DOTALL)
_MARK = lazy_pattern(
    r"<(?P<close>/?)(?P<tag>answer|solution)\b[^<>\n]{0,80}>|\\(?:f?boxed|f(?:rame)?box)(?P<box>\s?\{)?"
    r"|(?P<hash>\#{4,}+)(?P<line>[^\n<\#\\]*+)",
    re.IGNORECASE,
)
_CUE = lazy_pattern(
    r"\banswer\b(?:[^\n\d.?!:=]{0,60}?\b(?:is|was|be|equals)\b|[^\n\d.?!:=]{0,60}[:=]|[^\w\n]{0,8}\n)"
    r"|(?:^[ \t]{0,8}|(?<=\?)[ \t]{1,3})A:"
    "|\u7b54\u6848 ?[\u662f\u4e3a\u70ba:]:?",
    re.IGNORECASE | re.MULTILINE,
)
_BOX_BEFORE = lazy_pattern(
    r"\\(?:f?boxed|f(?:rame)?box)\s?\{([^{}]{1,60})\}(?:[\s$,;&.?()\[\]\\]"
    r"|\b(?:and|or|vs|maybe|perhaps|possibly|either|also|else|(?:could|might|may)(?:\s+(?:also|be))*)\b"
    r"|\\(?:text|mathrm|mbox)(?![a-z])|[{}])*\Z",
    re.IGNORECASE,
)
_TAG = lazy_pattern(r"</?(?:answer|solution|think|reasoning)\b[^<>\n]{0,80}>|<\|[^<>|\s]{1,40}\|>", re.IGNORECASE)
_DIGIT = lazy_pattern(r"\d")
_BOLD = lazy_pattern(r"\*\*([^*\n]{1,80})\*\*")
_BESIDE_BOLD = lazy_pattern(
    r"[^\w\n]*(?:[^\W\d_]+\s+){0,2}?(?:for|of|in|at|per|from|over|with|by|on|to|than|after|during|each|every|because|since"
    r"|when|if|as|or|and)\b|\W*[(,]|[^\w]*\Z",
    re.IGNORECASE,
)
_CONCLUSION = lazy_pattern(
    r"\b(?:so|thus|therefore|hence|total|altogether|in\s+all|overall|final(?:ly)?|answer|conclusion|consequently)\b",
    re.IGNORECASE,
)
_EQUALS = lazy_pattern(r"(?<![!<>])=")
_THEREFORE = lazy_pattern(r"\b(?:so|thus|therefore|hence|then)\b", re.IGNORECASE)
_SENTENCE_END = lazy_pattern(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)[)\"'*]{0,3}\s(?!\()|(?<=[\u3002\uff01\uff1f])")
_EXCLAIMED = lazy_pattern(r"(?<=\d)(?:\*\*)?!\s*\Z")
_QUESTION = lazy_pattern(r"[?\uff1f][\s)\"'*$\\\]}]*\Z")
_DENIAL = lazy_pattern(
    r"(?:\bnot|\bnever|n['\u2019]t|\bnicht|\bpas|\bno\s+es|(?<!\w)\u043d\u0435|\u4e0d\u662f|(?<!\w)[!\u00ac]|\brather\s+than|\binstead\s+of|\bas\s+opposed\s+to"
    r"|\b(?:wrong|incorrect)\s+(?:answer|solution|result|value|number)(?:\s+(?:is|was|would\s+be))?:?)"
    r"[ $*(\[{]*(?:(?:be|equal|exactly|to|the|answer|is)[ $*(\[{]+){0,4}\Z"
    r"|(?:\bnot(?:\s+(?:the|my|an?))?(?:\s+answer)?|\btoo\s+(?:low|high|big|large|small|much|many|few)|\bruled\s+out|\brejected)"
    r"\s*:[\s$*({\[]*\Z",
    re.IGNORECASE,
)
_BOUND = lazy_pattern(
    r"[\s$({\\]*(?:[<>](?=[=\s$-]*\d)|[\u2264\u2265\u2260]|!=|(?<=\\)(?:leq?|geq?|lt|gt|neq?)(?![a-zA-Z])"
    r"|(?:less|fewer|more|greater|larger|smaller|bigger)\s+than\b|(?:at\s+(?:most|least)|up\s+to|no\s+more\s+than)\b)",
    re.IGNORECASE,
)
_UNDONE = lazy_pattern(
    r"\W*(?:the\s+)?(?:half|double|twice|thrice|triple|(?:square|cube|reciprocal|factorial|(?:square|cube)\s+root)\s+of)"
    r"\s+(?:of\s+)?[^\s=\d]{0,3}\d[\d.,]*[^=\d]*\Z"
    r"|\W*\d[\d.]*\s*(?:%|percent\b)\s*of\s+[^\s=\d]{0,3}\d[\d.,]*[^=\d]*\Z",
    re.IGNORECASE,
)
_TOTAL = lazy_pattern(
    r"\b(?:(?:a|the|grand|combined)\s+total\s+(?:of|is|comes\s+to)|totall?ing|(?:giving|leaving|making|which\s+"
    r"(?:is|makes|gives|leaves|means))(?:\s+(?:him|her|them|us|it|you|me|a|the|total|of|only|just|exactly)\b)*)"
    r"(?=[\s$*({\[]*\d)",
    re.IGNORECASE,
)
_EQUATED = lazy_pattern(
    r"[\s$]*(?:[,;]\s*|\s(?=\s*(?:and|or|&)\s)\s*)(?:(?:and|or|&)\s+)?(?:maybe\s+|perhaps\s+)?\$?[a-zA-Z]\s*=[\s$]*",
    re.IGNORECASE,
)
_EQUATED_AFTER_BLANK = lazy_pattern(r"[\s$]+[a-zA-Z]\s*=[\s$]*")
_SET_EQUAL = lazy_pattern(r"=[\s$]*\Z")
_MINUS = lazy_pattern(r"(\A[\s$*]*|(?:\b(?:is|are|was|be|equals?|to)|=)\s+[$*]{0,3})minus\s+(?=[$]?\d)", re.IGNORECASE)
_OR_ABOUT = lazy_pattern(r"[\s,($)]*or\s+(?:about|approximately|roughly|around)\s+[$]?", re.IGNORECASE)
_OR_ELSE = lazy_pattern(
    r"[\s.!?*_$]*(?:but\s+)?(?:or|maybe|perhaps|possibly|alternatively|otherwise)\b[^\n\d]{0,40}\d", re.IGNORECASE
)
_POSSIBLY = lazy_pattern(
    r"\b(?:could|might|may|probably|perhaps|possibly|can(?:not|['\u2019]t)|should\s?n[o\u2019']t)\b", re.IGNORECASE
)
_AGAIN = lazy_pattern(r"[\s,($)]*(?:or|i\.e\.,?|that\s+is,?|=)?[\s$]*", re.IGNORECASE)
_BARE_SIDE = lazy_pattern(r"(?:\A|=)[\s$*]*(-?\d[\d,]*+(?:\.\d+)?)[\s$*]*=[\s$*({\[]*\Z")
_PART_OF = lazy_pattern(
    r"\d\s+(?:[^\W\d_]+\s+)?(?:out\s+)?of\s+(?:the|all|these|those|his|her|their|its)\s+\Z", re.IGNORECASE
)
_EITHER_SIGN = lazy_pattern(r"\u00b1|\\(?:pm|mp)(?![a-z])|\+\s?/\s?-")
_PLUS_MINUS = lazy_pattern(r"(?:\u00b1|\\(?:pm|mp)(?![a-z])|\+\s?/\s?-)[\s{$]*\Z")
_TAKEN_BACK = lazy_pattern(r"[\s.!?*_]*(?:wait|no|actually|sorry|oops|correction)\b", re.IGNORECASE)
_ASIDE = lazy_pattern(
    r"\s\((?!\s*(?:or|maybe|perhaps|possibly|alternatively|otherwise|else)\b)(?=[^()]*[^\W\d_]{2})[^()]*\)",
    re.IGNORECASE,
)
_GAP = r"[\s,;/|&~?()\[\]{}*_$+^\u00d7\u00f7\u00b7\u2013\u00b1\u2213<>\u2264\u2265-]*+"
_RESULTS: dict[str, Callable[[Fraction], Fraction]] = {
    **dict.fromkeys(("+", "plus"), lambda x: x + x),
    **dict.fromkeys(("-", "\u2013", "minus"), lambda x: x - x),
    **dict.fromkeys(
        ("*", "\u00d7", "\u00b7", "^", "x", "times", "multiplied by", "\\times", "\\cdot", "\\ast"), lambda x: x * x
    ),
    **dict.fromkeys(("\u00f7", "divided by", "\\div"), lambda x: Fraction(1)),
}
_OPERATORS = "|".join(re.escape(word) for word in sorted(_RESULTS, key=len, reverse=True))
_OPERATOR = lazy_pattern(rf"[\s)\]}}]*+({_OPERATORS})[\s(\[{{$]*+", re.IGNORECASE)
_JOINT = lazy_pattern(
    r"(?!\s*+\((?!\s*+(?:or|maybe|perhaps|possibly|alternatively|otherwise|else)\b))"
    rf"{_GAP}(?:(?:or|and|nor|to|vs|versus|maybe|perhaps|possibly|either|!=|\u2260|otherwise|else|alternatively|but"
    r"|unless|also|even|(?:it|the\s+answer)(?:['\u2019]s|\s+(?:is|was|(?:could|might|may)\s+be))"
    r"|oder|und|bis|ou(?:\s+bien)?|et|\u00e0|o|u|y|e|hasta|\u0434\u043e|\u5230|\u81f3|\u0438\u043b\u0438|\u0438|\u6216\u8005?|\u548c|\u4e0e|\u307e\u305f\u306f|\ub610\ub294"
    rf"|\\(?:not\s?=|(?:neq?|leq?|geq?|lt|gt|pm|mp)(?![a-zA-Z]))|{_OPERATORS}){_GAP})*+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The final answer of a completion."""

    text: str  # what was taken as the answer
    # the number it states; several when it hedges ("71 or 72", "6 * 12"); none when it is no number, or one that is
    # denied ("not 72"), asked ("72?") or a bound ("> 72")
    numbers: tuple[Number, ...]
    form: Form  # how it was marked


def final_answer(completion: str, *, terms: bool = False) -> Answer | None:
    """Finds the final answer of a completion, or None when it holds no number and no marked answer.

    `terms`: the numbers of an expression count as they stand, for a caller that computes it: 4 in "4\\sqrt{2}".
    """
    text = plain_text(visible(_CALL.sub(" ", completion.strip()[-_READ:])))
    split = reasoning_end(text)
    rest = text[split:]
    part = rest if "</" in rest or any(map(str.isalnum, _TAG.sub("", rest))) else text[:split]
    answer = _explicit(part, terms=terms) or _unmarked(part, terms=terms)
    return answer if answer is not None and answer.text else None


def gold_number(answer: object) -> Number | None:
    """Reads the gold answer of a row, or None when it is unusable (not one number).

    `answer`: a number, its text ("72", "$1,080", "1/2", "72 apples"), or a text with one explicit form ("... #### 72").
    """
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return None
    if isinstance(answer, int) and answer.bit_length() > 4 * DIGITS:
        return None
    text = str(answer)
    stated = text.rpartition("####")[2]
    number = read_number(stated, units=True)
    if number is None and (spoken := _spoken(stated)):
        number = spoken[0]
    if number is None and "####" not in text:
        marked = _explicit(plain_text(text[-_READ:]))
        number = marked.numbers[0] if marked and len(marked.numbers) == 1 else None
    return number if number is not None and is_exact(number) else None


def gold_numbers(answer: object) -> tuple[Number, ...]:
    """Reads the gold answers of a row, any of which is right; `answer`: as for `gold_number`, or a list of them."""
    golds = answer if isinstance(answer, list | tuple) else [answer]
    return tuple(number for number in map(gold_number, golds) if number is not None)


def names_none(content: str) -> bool:
    """Returns whether a marked answer holds a number and states none: "> 72", "not 72", "72 or something else"."""
    content = plain_text(content.strip())
    return SUSPECT.search(content) is not None and (_vague(content) or _stated(content, terms=True) == ())


def is_right(answer: Answer | None, *golds: Number) -> bool:
    """Returns whether the answer states one of the gold numbers and no other number; exact, without tolerance."""
    if answer is None or not answer.numbers:
        return False
    return any(all(distance(number, gold) == 0 for number in answer.numbers) for gold in golds)


def _unmarked(text: str, *, terms: bool) -> Answer | None:
    return _cued(text, terms=terms) or _counted(text) or _last_sentence(text, terms=terms) or _in_words(text)


def _explicit(text: str, *, terms: bool = False) -> Answer | None:
    """The last explicit form that is not blank, or what takes it back; none where a blank one ends the text."""
    after, empty = len(text), False
    for mark in reversed(list(_MARK.finditer(text))):
        form, content = _content(text, mark, after)
        content = content.strip()
        rest = text[after:] if mark["tag"] else text[mark.end() :]
        blank = not (content or mark["close"] or mark["hash"] or (mark["tag"] and after == len(text)))
        empty = empty or (blank and not any(map(str.isalnum, _TAG.sub("", rest))))
        if mark["tag"]:
            after = mark.start()
        if not content or mark["close"]:
            continue
        guess = not terms and _guess_leads(content)
        if form == "hash" and not (_leads(content) or _spoken(content) or labelled(content) or guess):
            continue
        following = text[_end_of(text, mark, content) :]
        if revised(following):
            return _unmarked(following, terms=terms) or Answer("", (), form)
        stated = None if _vague(content) else _stated(content, terms=terms) or _spoken(content)
        if stated and not terms and any(_is_guess(content, number) for number in stated):
            stated = ()
        others = _boxes_before(text, mark.start()) if form == "boxed" and stated else ()
        return Answer(shortened(content), (*(stated or ()), *others), form)
    return Answer("", (), "tag") if empty else None


def _end_of(text: str, mark: re.Match[str], content: str) -> int:
    return mark.end() if mark["hash"] else text.find(content, mark.end()) + len(content)


def _is_guess(content: str, number: Number) -> bool:
    """Whether a marked number is only near the answer; decimals and percents are rounded with good reason."""
    return number.factor == number.value.denominator == 1 and guessed(content, number.start, number.end)


def _guess_leads(content: str) -> bool:
    """Whether a line is "about 72", which is an answer and no heading."""
    first = next(numbers_in(content[:_LONGEST]), None)
    return first is not None and _is_guess(content, first)


def _boxes_before(text: str, end: int) -> Iterator[Number]:
    """Numbers of the boxes before one with nothing but commas and joining words between."""
    while match := _BOX_BEFORE.search(text, max(0, end - _REACH), end):
        number = read_number(match[1], units=True)
        if number is None:
            return
        yield number
        end = match.start()


def _vague(content: str) -> bool:
    """Whether a text is a question, a bound, or a number to compute with: "twice 36"."""
    if _QUESTION.search(content) or _BOUND.match(content):
        return True
    return _UNDONE.fullmatch(content) is not None and _spoken(content) is None


def _content(text: str, mark: re.Match[str], after: int) -> tuple[Form, str]:
    if mark["tag"]:
        return "tag", text[mark.end() : after]
    if mark["hash"]:
        return "hash", mark["line"]
    window = text[mark.end() : mark.end() + _LONGEST]
    if not mark["box"]:
        return "boxed", window.split("\n", 1)[0]
    return "boxed", to_brace(window)


def _cued(text: str, *, terms: bool) -> Answer | None:
    """The text after the last "answer is", "Answer:" or "A:" with a number on the same or the next line."""
    for cue in reversed(deque(_CUE.finditer(text), maxlen=_CUES)):
        if SUPPOSED.search(text, max(0, cue.start() - _SIDE), cue.start()):
            continue
        line = text[cue.end() : cue.end() + _LONGEST].lstrip().split("\n", 1)[0]
        sentence = _SENTENCE_END.split(line, maxsplit=1)[0]
        if _QUESTION.search(sentence):
            continue
        end = cue.end() + text[cue.end() :].find(sentence) + len(sentence)
        numbers = () if _vague(sentence) else _stated(_EXCLAIMED.sub("", sentence), terms=terms)
        if not numbers and not (numbers == () and (_vague(sentence) or not _DIGIT.search(text, end))):
            numbers = _spoken(sentence)
        if numbers is None:
            continue
        if _TAKEN_BACK.match(text, end) and _DIGIT.search(text, end):
            return None
        if revised(text[end:]):
            return _unmarked(text[end:], terms=terms) or Answer("", (), "sentence")
        if _OR_ELSE.match(text, end) or _POSSIBLY.search(cue[0]):
            numbers = ()
        return Answer(shortened(sentence), _with_rivals(numbers, text[:end]), "sentence")
    return None


def _counted(text: str) -> Answer | None:
    line = text[-_LONGEST:].rstrip().rpartition("\n")[2]
    if _DIGIT.search(line[-3:]):
        return None
    sentence = _SENTENCE_END.split(line)[-1].strip(" *_$")
    value = counted(sentence)
    if value is None:
        return None
    return Answer(shortened(sentence), (Number(value, Fraction(1), sentence, 0, len(sentence)),), "prose")


def _last_sentence(text: str, *, terms: bool) -> Answer | None:
    emphasised = _bold_conclusion(text)
    if emphasised is not None:
        numbers = _stated(emphasised, leading=False, terms=terms)
        if numbers and len({number.value for number in numbers}) == 1 and _bold(emphasised, list(numbers)):
            return Answer(shortened(emphasised), numbers, "prose")
    for line in reversed(text.split("\n")):
        if not _DIGIT.search(line):
            continue
        for sentence in reversed(_SENTENCE_END.split(line[-_LONGEST:])):
            numbers = None if _QUESTION.search(sentence) else _stated(sentence, leading=False, terms=terms)
            if numbers is not None:
                numbers = () if _BOUND.match(sentence) else numbers
                return Answer(
                    shortened(sentence), _with_rivals(numbers, text[: text.rfind(sentence) + len(sentence)]), "prose"
                )
    return None


def _bold_conclusion(text: str) -> str | None:
    """A sentence with its number in bold before the last one with a number, if later ones conclude nothing.

    In an earlier line it has to be a conclusion itself ("So she pays **$20**.").
    """
    passed = False
    for line in reversed(text[-_LONGEST:].rstrip().split("\n")):
        in_last_line = not passed
        for sentence in reversed(_SENTENCE_END.split(line)):
            if _DIGIT.search(sentence) and any(_DIGIT.search(bold[1]) for bold in _BOLD.finditer(sentence)):
                wanted = passed and (in_last_line or _CONCLUSION.search(sentence))
                return sentence if wanted and not _QUESTION.search(sentence) else None
            if _CONCLUSION.search(sentence) or _EQUALS.search(sentence) or _TAKEN_BACK.match(sentence):
                return None
            passed = passed or _DIGIT.search(sentence) is not None
    return None


def _with_rivals(numbers: tuple[Number, ...], text: str) -> tuple[Number, ...]:
    """Adds the numbers that the sentences before put into the same words."""
    others = [read_number(other) for other in rivals(text)] if numbers else []
    return (*numbers, *(other for other in others if other is not None))


def _stated(content: str, *, leading: bool = True, terms: bool = False) -> tuple[Number, ...] | None:
    """The number that a short text states: after its last "so", after an "=", else a leading or the last one.

    Numbers joined to it by nothing but commas, operators or words like "or" are stated too: that is a hedge. A remark
    in brackets counts where nothing else does. None without a number; empty when every number is denied, or for an
    expression ("4x"), unless `terms` reads its numbers as they stand.
    """
    if len(content) > _LONGEST:
        content = content[-_LONGEST:]
    if not _DIGIT.search(content):
        return None
    content = _MINUS.sub(r"\1-", content)
    content = main_clause(content)
    single = read_number(content)
    if single is not None and not _EITHER_SIGN.search(content):
        return () if _DENIAL.search(content, 0, single.start) else (single,)
    values = labelled(content) if leading else None
    if values is not None:
        return values
    outside = _ASIDE.sub(lambda aside: " " * len(aside[0]), content)
    quantities = one_quantity(content, list(numbers_in(content)))
    if not quantities:
        return None
    denied = [
        number
        for number in quantities
        if _DENIAL.search(content, max(0, number.start - 40), number.start) or REJECTED.match(content, number.end)
    ]
    outer = [number for number in quantities if not outside[number.start].isspace()] or quantities
    numbers = [number for number in outer if number not in denied]
    begin = stated_from(content)
    numbers = [number for number in numbers if number.start >= begin and not _is_whole(content, number)]
    numbers = [number for at, number in enumerate(numbers) if not (at and _rounds(content, numbers[at - 1], number))]
    if not numbers:
        return ()
    chosen = _chosen(content, numbers, leading=leading)
    altered = [n for n in numbers if not terms and changed(content, n.start, n.end, marked=leading)]
    if any(number in altered for number in chosen):
        numbers = [number for number in numbers if number not in altered]
        if leading or not numbers or not all(number in altered for number in chosen):
            return ()
        chosen = _chosen(content, numbers, leading=leading)
    if doubtful(content, chosen[0].start, chosen[0].end) or UNKNOWN.search(content):
        return ()
    if any(number.value == chosen[0].value for number in denied):
        return ()
    return tuple(numbers) if wavers(content) else chosen


def _chosen(content: str, numbers: list[Number], *, leading: bool) -> tuple[Number, ...]:
    concluded = _after(_THEREFORE, content, numbers)
    bold = _bold(content, concluded or numbers)
    if bold is not None:
        at = numbers.index(bold)
        return (*_joined(content, numbers[at:]), *_joined(content, numbers[at::-1])[1:])
    equal = _after(_EQUALS, content, concluded or numbers)
    if equal:
        total = _after(_TOTAL, content, equal)
        if total:
            return _joined(content, total)
        return (*_joined(content, equal), *_equated(content, equal[0], numbers), *_contrary(content, equal[0]))
    if concluded:
        return _joined(content, concluded[::-1])
    if leading and _leads(content):
        return _joined(content, numbers)
    return _joined(content, numbers[::-1])


def _bold(content: str, numbers: list[Number]) -> Number | None:
    """The only bold number, with its unit at most, if no equation or clause follows it."""
    if "**" not in content:
        return None
    chosen: list[Number] = []
    for span in _BOLD.finditer(content):
        inside = [number for number in numbers if span.start(1) <= number.start < span.end(1)]
        stated = re.split(r"[:=]", span[1])[-1]
        if len(inside) == 1 and read_number(stated, units=True) is not None:
            chosen.append(inside[0])
            if _EQUALS.search(content, span.end()) or not _BESIDE_BOLD.match(content, span.end()):
                return None
    return chosen[0] if len({number.value for number in chosen}) == 1 else None


def _spoken(content: str) -> tuple[Number, ...] | None:
    text = content.strip(" *_$\t\n")
    value = spoken_number(text)
    return None if value is None else (Number(value, Fraction(1), text, 0, len(text)),)


def _in_words(text: str) -> Answer | None:
    numbers = _spoken(text)
    return None if numbers is None else Answer(shortened(text), numbers, "prose")


def _after(marker: re.Pattern[str], content: str, numbers: list[Number]) -> list[Number]:
    last = max((m.end() for m in marker.finditer(content)), default=len(content))
    return [number for number in numbers if number.start >= last]


def _joined(content: str, numbers: list[Number]) -> tuple[Number, ...]:
    chain, results = [numbers[0]], list[Number]()
    if _PLUS_MINUS.search(content, max(0, numbers[0].start - 8), numbers[0].start):
        results.append(replace(numbers[0], value=-numbers[0].value))
    for number in numbers[1:]:
        left, right = sorted((chain[-1], number), key=lambda n: n.start)
        if not _JOINT.fullmatch(content, left.end, right.start) and content[left.end : right.start] != ":":
            break
        if left.value == right.value:
            results += _result(content[left.end : right.start], left)
        chain.append(number)
    return (*chain, *results)


def _is_whole(content: str, number: Number) -> bool:
    """Whether a number is what another is counted out of: 100 in "72 of the 100 clips"."""
    return _PART_OF.search(content, max(0, number.start - _SIDE), number.start) is not None


def _rounds(content: str, exact: Number, number: Number) -> bool:
    """Whether a number only repeats the one before it in decimals or percent: "1/3, or about 0.33"."""
    if exact.value * exact.factor == number.value * number.factor and exact.factor != number.factor:
        return _AGAIN.fullmatch(content, exact.end, number.start) is not None
    if not _OR_ABOUT.fullmatch(content, exact.end, number.start) or exact.value.denominator == 1:
        return False
    value = exact.value * 100 if number.factor != exact.factor else exact.value
    places = len(number.text.partition(".")[2].rstrip("% ")) if "." in number.text else 0
    return round(value, places) == number.value


def _equated(content: str, number: Number, numbers: list[Number]) -> Iterator[Number]:
    """Numbers before one that are set equal to something as it is: 71 in "x=71, x=72"."""
    for earlier in reversed([value for value in numbers if value.end <= number.start]):
        after_blank = _EQUATED_AFTER_BLANK.fullmatch(content, earlier.end, number.start)
        if not _EQUATED.fullmatch(content, earlier.end, number.start) and not (
            after_blank and _SET_EQUAL.search(content, max(0, earlier.start - 8), earlier.start)
        ):
            return
        yield earlier
        number = earlier


def _contrary(content: str, number: Number) -> Iterator[Number]:
    """The bare number on another side of the equation before one that is not nearly it: 71 in "71 = 72"."""
    match = _BARE_SIDE.search(content, max(0, number.start - _SIDE), number.start)
    side = read_number(match[1]) if match else None
    if side is not None:
        gap = distance(side, number)
        whole = side.value.denominator == number.value.denominator == 1
        if gap and (whole or gap * 20 > abs(number.value)):
            yield side


def _result(joint: str, operand: Number) -> list[Number]:
    """The value of an undone calculation with twice the same number: 81 for "9 * 9", so that it is no 9."""
    operator = _OPERATOR.fullmatch(joint)
    return [] if operator is None else [replace(operand, value=_RESULTS[operator[1].lower()](operand.value))]


def _leads(content: str) -> bool:
    leading = next(numbers_in(content[:_LONGEST]), None) if _DIGIT.search(content) else None
    return leading is not None and not any(c.isalnum() for c in content[: leading.start])
