"""The verifier `math`: a completion and the gold answer in, a verdict out.

Every step either decides or leaves it to the next, from the cheapest to the dearest: text, words, letter, objections,
number, and only then computer algebra, in a process of its own with a hard time limit.
"""

from __future__ import annotations

import re
from fractions import Fraction

from grpo.plugins.decorators import verifier
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case, Verdict
from grpo.rewards.answers import Answer, final_answer, gold_number, is_right
from grpo.rewards.math_answer import MARKUP, Statement, gold_text, plain, statement
from grpo.rewards.math_choice import chosen_letter, gold_letter
from grpo.rewards.math_claim import claim, groups, several
from grpo.rewards.math_guard import hostile
from grpo.rewards.math_objection import objection, repeats
from grpo.rewards.math_process import SECONDS, Undecided, compare
from grpo.rewards.numerals import Number, plain_text, read_number
from grpo.rewards.words import says

TIMEOUT = 60.0
"""Seconds until the scoring engine ends the row: far more than the comparison and the start of its process may take."""

_END = 1000
_LONGEST_LIMIT = 3600.0
_MOST_DECIMALS = 12
_TERM = re.compile(r"\d\s+[abcdefijknopqrtuvwxyz]\$?\s*$")
_WORDS = re.compile(r"(?!(?:sin|cos|tan|log|sqrt|exp|ln)\w?\b)[^\W\d_]+(?:[\s,'\u2019-]+[^\W\d_]+)*[.!]?")
_WORD = re.compile(r"(?i:\b(?:yes|no|odd)\b)|[^\W\d_]{4,}|[^\W\d_]\s+[^\W\d_]{2,}|[^\W\d_]{2,}\s+[^\W\d_]")
_CUE = re.compile(r"\banswer\s*(?:is|:)\s*", re.IGNORECASE)

CASES = [
    Case("So $x = \\boxed{\\frac{1}{2}}$.", {"answer": "$\\frac{1}{2}$"}, True),
    Case("<think>\nHalf.\n</think>\n<answer>\n0.5\n</answer>\n", {"answer": "1/2"}, True),
    Case("\\boxed{2\\sqrt{3}}", {"answer": "\\sqrt{12}", "question": "How long is the diagonal of the cube?"}, True),
    Case("The final answer is $(x+1)^2$.", {"answer": "x^2 + 2x + 1"}, True),
    Case("\\boxed{\\{1, 2\\}}", {"answer": "$\\{2, 1\\}$"}, True),
    Case("It cannot be A, so the answer is (B).", {"answer": "B"}, True),
    Case("<answer>Paris.</answer>", {"answer": "\\text{paris}"}, True),
    Case("#### 72", {"answer": "6*12 = <<6*12=72>>72\n#### 72"}, True),
    Case("\\boxed{\\frac{1}{3}}", {"answer": "\\frac{1}{2}"}, False),
    Case("\\boxed{71 \\text{ or } 72}", {"answer": "72"}, False),
    Case("\\boxed{\\{71, 72\\}}", {"answer": "72"}, False),
    Case("\\boxed{\\int_0^1 x\\,dx}", {"answer": "\\frac{1}{2}"}, False),
    Case("\\boxed{\\sqrt{12}}", {"answer": "2\\sqrt{3}", "question": "Simplify $\\sqrt{12}$."}, False),
    Case("I cannot tell.", {"answer": "\\frac{1}{2}"}, False),
    Case("", {"answer": "\\frac{1}{2}"}, False),
    Case("\\boxed{9^{9^{9}}}", {"answer": "72"}, None),
    Case("\\boxed{72}", {"answer": ""}, None),
]


def prepare(*, limit: float, precision: int, **_others: object) -> None:
    """Refuses limits and precisions that cannot work.

    Raises:
        OptionError: `limit` or `precision` is out of range.
    """
    if not 0 < limit <= _LONGEST_LIMIT:
        raise OptionError(f"the option 'limit' is {limit:g}; set seconds above 0 and up to {_LONGEST_LIMIT:g}.")
    if not 0 <= precision <= _MOST_DECIMALS:
        raise OptionError(f"the option 'precision' is {precision}; set decimals from 0 to {_MOST_DECIMALS}.")


@verifier(version=1, isolation="process", timeout=TIMEOUT, cases=CASES, prepare=prepare)
def math(
    completion: str,
    answer: str,
    question: str | None = None,
    *,
    precision: int = 6,
    strict: bool = True,
    relations: bool = False,
    evaluated: bool = True,
    limit: float = SECONDS,
) -> Verdict:
    """Judges whether the stated answer is mathematically the same as the gold.

    The answer stands after the reasoning, in the last of an `<answer>` or `<SOLUTION>` block, a line `#### ...`,
    `\\boxed{}` and "the final answer is ..."; without any of them, at the end of the text. The first of these decides:
    1. a gold that is empty, or neither text nor number: undecided; nothing stated, or the question alone: wrong;
    2. the same text but for spacing and LaTeX that does not matter: right;
    3. a gold in words: right when they are the same but for case, punctuation and articles ("Yes, because ..." says
       yes), else wrong;
    4. a gold that is one capital letter: the letter chosen decides;
    5. an expression that would hang computer algebra (huge powers, factorials, numbers, deep brackets): undecided;
    6. several values where the gold is one, a denial, a question, a problem left to compute (`\\int`, `\\sum`, 6*12),
       an expression of the question: wrong;
    7. a gold and an answer that are plain numbers: equal, or equal to `precision` decimals where one is a decimal;
    8. math-verify on sympy: simplified, to `precision` decimals, sets, intervals, matrices, relations, units, percent;
       undecided at the time limit, or when it breaks its process;
    9. a gold that is no mathematics either: wrong.

    Args:
        completion: the text.
        answer: the gold: LaTeX, a number, a text, or a worked solution that ends in `#### 72` or holds `\\boxed{}`.
        question: the question, where the rows have it; repeating an expression of it is then no answer.
        precision: decimal places to which numbers are compared.
        strict: False lets variables have other names, and a set equal a tuple.
        relations: an inequality in the answer may equal an interval in the gold (the other way round it always may).
        evaluated: False lets the answer be a problem left to compute, or an expression of the question.
        limit: seconds of processor time for one comparison by computer algebra, and a third of its wall time.
    """
    prepare(limit=limit, precision=precision)
    gold = gold_text(answer)
    if gold is None:
        return Verdict(None, None, "the gold answer is empty or not a text or a number")
    stated = None if repeats(completion, question) else statement(completion)
    if stated is None:
        return Verdict(False, None, "nothing is stated")
    extracted = _shorten(stated.parts[-1] if stated.parts else claim(stated))
    if plain(gold) == plain(stated.parts[0] if len(stated.parts) == 1 else stated.text):
        return Verdict(True, extracted, f"the text of the gold ({stated.form})")
    values = groups(_core(gold))
    if values is not None and len(stated.parts) < 2 and values == groups(_core(stated.text)):
        return Verdict(True, extracted, f"the values of the gold ({stated.form})")
    if _in_words(gold):
        same = says(_said(stated), MARKUP.sub(r"\1", gold))
        return Verdict(same, extracted, "the words of the gold" if same else "other words than the gold's")
    letter = gold_letter(plain(gold))
    if letter:
        chosen = chosen_letter(stated)
        return Verdict(chosen == letter, chosen, f"the letter chosen ({stated.form})")
    reason = next(filter(None, map(hostile, stated.parts or (claim(stated),))), None)
    if reason is not None:
        return Verdict(None, extracted, f"not compared: {reason}")
    number = _gold_number(answer, gold)
    wrong = objection(stated, _core(gold), number, question=question, evaluated=evaluated)
    if wrong is not None:
        return Verdict(False, extracted, f"{wrong} ({stated.form})")
    if number is not None:
        right = _same_number(stated, number, precision)
        if right is not None:
            return Verdict(right, extracted, f"{'equals' if right else 'differs from'} the number {number.text}")
    return _algebra(gold, stated, extracted, limit, precision=precision, strict=strict, relations=relations)


def _algebra(gold: str, stated: Statement, extracted: str, limit: float, **options: int | bool) -> Verdict:
    reason = None if stated.parts else hostile(stated.text[-_END:])
    if reason is not None:
        return Verdict(None, extracted, f"not compared: {reason}")
    text = stated.parts[0] if stated.form in ("tag", "hash") else stated.text
    try:
        same = compare("same", gold, text, seconds=limit, **options)
    except Undecided as error:
        return Verdict(None, extracted, str(error))
    if same is None:
        return Verdict(False, extracted, "the gold is no mathematics, and the answer is another text")
    return Verdict(same, extracted, f"{'the same as' if same else 'differs from'} the gold by math-verify")


def _in_words(gold: str) -> bool:
    """True for a gold of words; a few letters without a blank may as well be a product of variables."""
    text = MARKUP.sub(r"\1", gold.strip().strip("$")).strip()
    return bool(_WORDS.fullmatch(text) and _WORD.search(text))


def _said(stated: Statement) -> str:
    """A statement in words: its marked content, or what follows its last "answer is", or all of it."""
    if stated.parts:
        return MARKUP.sub(r"\1", stated.parts[0]) if len(stated.parts) == 1 else ""
    cues = list(_CUE.finditer(stated.text))
    return MARKUP.sub(r"\1", stated.text[cues[-1].end() :] if cues else stated.text)


def _gold_number(answer: object, gold: str) -> Number | None:
    """The gold as a number, unless it is a term with a variable, or several answers."""
    return None if _TERM.search(gold) or several(_core(gold)) else gold_number(answer)


def _core(text: str) -> str:
    """The marked content of a text, or all of it where nothing or more than one thing is marked."""
    stated = statement(text)
    return stated.parts[0] if stated is not None and len(stated.parts) == 1 else text


def _same_number(stated: Statement, gold: Number, precision: int) -> bool | None:
    """Whether a statement is the gold number, or None when that takes algebra, or a closer look at prose, to say."""
    if stated.parts:
        content = plain_text(stated.parts[0].strip().strip("$"))
        number = None if _TERM.search(content) else read_number(content, units=True)
        if number is None:
            return _hedged(final_answer(f"<answer>{stated.parts[0]}</answer>"))
        if is_right(Answer(content, (number,), "tag"), gold):
            return True
        if number.factor != 1 or gold.factor != 1:
            return None
        return _rounded(number.value, gold.value, precision)
    found = final_answer(stated.text)
    if found is None or re.search(r"[\\^_]", found.text):
        return None
    return True if len(found.numbers) == 1 and is_right(found, gold) else _hedged(found)


def _rounded(value: Fraction, gold: Fraction, precision: int) -> bool:
    """Whether two different numbers agree to so many decimals, or significant digits where the gold is too small."""
    if value.denominator == 1 and gold.denominator == 1:
        return False
    if abs(gold) < Fraction(10) ** (2 - precision):
        return abs(value - gold) <= abs(gold) * Fraction(10) ** (1 - precision)
    return round(value, precision) == round(gold, precision)


def _hedged(found: Answer | None) -> bool | None:
    """False for several numbers that are no arithmetic: joined by words, commas or blanks alone."""
    if found is None or len({number.value for number in found.numbers}) < 2:
        return None
    groups = sorted(found.numbers, key=lambda number: number.start)[1:]
    thousands = all(re.fullmatch(r"\d{3}(?:\.\d+)?", number.text) for number in groups)
    return None if thousands or re.search(r"[-+*/^=\u00d7\u00b7\u00f7\\]|\d,\d", found.text) else False


def _shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 200 else text[:100] + " ... " + text[-95:]
