"""Explains why a statement is no answer: several values, a denial, a question, the problem restated."""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.math.answer import Statement, plain
from grpo.rewards.math.claim import claim, derived, formulas, formulas_alone, is_set, result, several
from grpo.rewards.numbers.answers import final_answer, is_right
from grpo.rewards.numbers.hedges import UNKNOWN
from grpo.rewards.numbers.numerals import Number, read_number

_SHORT = 80
_OR = lazy_pattern(r"\b(?:or|maybe|perhaps|possibly|either|vs|versus)\b", re.IGNORECASE)
_OR_BETWEEN = lazy_pattern(
    r"[\d$})\]]\s*,?\s*(?:or|vs\.?|versus)\s+(?:maybe\s+|perhaps\s+|possibly\s+)?(?:[a-zA-Z]\s*=\s*)?[-\d$\\(]",
    re.IGNORECASE,
)
_DENIAL = lazy_pattern(
    r"[\W_]*(?:\\(?:text|mathrm)\s?\{\s*)?(?:not\b|isn't\b|never\b|nicht\b|pas\b|no\s+es\b|\u043d\u0435\b|\u4e0d\u662f|\\(?:neq?|not|lnot|neg)(?![a-zA-Z])|!=|\u2260|\u00ac)",
    re.IGNORECASE,
)
_DENIED = lazy_pattern(
    r"(?:\bnot|n['\u2019]t|\bnever|\bcannot be)\s+(?:equal\s+(?:to\s+)?|exactly\s+)?"
    r"(?:[$(\[{\\]*[-+\w.,/^{}\\]*\d[-+\w.,/^{}\\$)\]]*|\$[^$]*\$)[\s.!]*\Z",
    re.IGNORECASE,
)
_RELATION = lazy_pattern(r"[<>\u2264\u2265\u2260]|\\(?:leq?|geq?|lt|gt|neq?|leqslant|geqslant|in|ni|mid)(?![a-zA-Z])")
_NO_ANSWER = lazy_pattern(
    r"\d[\s$*]*(?:\bis\s+(?:not|n['\u2019]t)|isn['\u2019]t)\s+(?:(?:the|a|an|my|correct|right|final)\s+){0,3}"
    r"(?:answer|solution|result|value|correct|right)\W*\Z|\d[\s$*]*\bis\s+(?:wrong|incorrect|false)\W*\Z",
    re.IGNORECASE,
)
_EXCLUDED = lazy_pattern(r"\bor\b[^.\d]{0,30}(?:!=|\u2260|\\neq?(?![a-z])|\bnot\b)", re.IGNORECASE)
_WRONG = lazy_pattern(r"\bis\s+(?:not\b|wrong|incorrect|false)[^\d]*\Z", re.IGNORECASE)
_UNEVALUATED = lazy_pattern(
    r"\\(?:i{0,3}o?int|sum|prod|lim|gcd|lcm|det|max|min)(?![a-zA-Z])|\\begin\s?\{vmatrix\}|\\operatorname\*?\s?\{(?:gcd|lcm|det|lim)\}"
    r"|\\frac\s?\{\s*\\?(?:mathrm)?\{?(?:d|\\partial)\}?[^{}]*\}\s?\{\s*(?:\\mathrm\{d\}|\\partial|d)\s?[a-z]"
)
_ARITHMETIC = lazy_pattern(r"(?:[\d\s.,$()+*\u00d7\u00b7-]|\\(?:cdot|times|left|right|[,;:! ]))+")
_POWER = lazy_pattern(r"(?<=\d)\s*\^\s*(?:\d|\{\s*\d{1,4}\s*\})|[\u00b2\u00b3]")
_ADDED = lazy_pattern(r"[\d)]\s*[+-]\s*[\d(]")
_WORKED = lazy_pattern(r"(?<=\d)\s+\([^()]*\)\s*\Z")
_LAST_SUM = lazy_pattern(r"\b(?:is|equals|are)\s+([\d(][\d\s.,()+*\u00d7\u00b7-]*)\Z", re.IGNORECASE)
_OPERATOR = lazy_pattern(r"[\d)]\s*(?:[+*\u00d7\u00b7-]|\\(?:cdot|times)(?![a-zA-Z]))")


def objection(
    prediction: Statement, gold: str, number: Number | None, *, question: str | None, evaluated: bool
) -> str | None:
    """Returns why the statement cannot be right, or None when it has to be compared.

    `prediction` is not the text of the gold. `question`: if the row has it. `evaluated`: a problem left to compute is
    no answer.
    """
    clause = claim(prediction)
    single = number is not None or not (several(gold) or is_set(gold))
    if clause.rstrip("$ \\])}").endswith("?") and "?" not in gold:
        return "a question is no answer"
    if len(prediction.text) <= _SHORT and UNKNOWN.search(prediction.text):
        return "the answer is said to be unknown"
    if " or " in clause and _EXCLUDED.search(clause) and not _OR.search(gold):
        return "the answer and its contrary are stated"
    if (_denies(prediction, clause, number) or _NO_ANSWER.search(clause)) and not _DENIAL.match(gold):
        return "the answer is denied"
    if single and _offers(prediction, clause) and not (_OR.search(gold) or _names_only(clause, number)):
        return "several answers where one is asked"
    if number is not None and any(map(_RELATION.search, prediction.parts)) and not _RELATION.search(gold):
        return "a relation where a number is asked"
    if any(map(_contradicts, prediction.parts)):
        return "two numbers that differ are set equal"
    tail = None if prediction.parts else _LAST_SUM.search(clause.rstrip(" ."))
    return _left_open(tail[1] if tail else result(clause), gold, number, question) if evaluated else None


def _names_only(clause: str, number: Number | None) -> bool:
    return number is not None and is_right(final_answer(f"<answer>{clause}</answer>", terms=True), number)


def _contradicts(content: str) -> bool:
    """True for "5 = 6"; what one rounds to the other is no contradiction."""
    sides = content.strip().strip("$").split("=")
    values = [read.value for read in map(read_number, sides) if read is not None] if len(sides) == 2 else []
    return len(values) == 2 and abs(values[0] - values[1]) * 100 > max(map(abs, values))


def _left_open(outcome: str, gold: str, number: Number | None, question: str | None) -> str | None:
    """Why a result is the problem again, in other or the same words."""
    if _UNEVALUATED.search(outcome) and not _UNEVALUATED.search(gold):
        return "the answer is not evaluated"
    if number is not None and _is_sum(outcome):
        return "the answer is left as a sum or a product"
    if question and _restates(outcome, gold, question):
        return "the answer is an expression of the question"
    return None


def repeats(completion: str, question: str | None) -> bool:
    """True when a completion is the question, once or more, and nothing else."""
    question = (question or "").strip()
    return bool(question) and question in completion and not completion.replace(question, "").strip()


def _denies(prediction: Statement, clause: str, number: Number | None) -> bool:
    """True for "not 5", and for what ends in it, unless that leaves a number: "6, not 5" where a number is asked."""
    if prediction.parts and not (_DENIAL.match(clause) or _WRONG.search(clause)):
        return False
    if not prediction.parts and not _DENIED.search(clause):
        return False
    answer = final_answer(clause, terms=True) if number is not None and not _WRONG.search(clause) else None
    return answer is None or not answer.numbers


def _offers(prediction: Statement, clause: str) -> bool:
    if len(prediction.parts) > 1:
        return True
    if len(formulas(clause)) > 1 and formulas_alone(clause) and not derived(clause):
        return True
    if prediction.parts or len(prediction.text) <= _SHORT:
        return bool(_OR.search(clause))
    return bool(_OR_BETWEEN.search(clause))


def _is_sum(outcome: str) -> bool:
    outcome = _WORKED.sub("", outcome).replace("\u2212", "-")
    if _POWER.search(outcome):
        outcome = _POWER.sub("", outcome)
        if not _ADDED.search(outcome):
            return False
    if "**" in outcome or not _ARITHMETIC.fullmatch(outcome) or not _OPERATOR.search(outcome):
        return False
    return read_number(outcome, units=True) is None


def _restates(outcome: str, gold: str, question: str) -> bool:
    text = plain(outcome)
    if len(text) < 3 or _bare(text) == _bare(plain(gold)) or read_number(outcome, units=True) is not None:
        return False
    return text in plain(question)


def _bare(text: str) -> str:
    return text.replace("{", "").replace("}", "")
