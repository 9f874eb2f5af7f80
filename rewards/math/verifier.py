"""Verifies a mathematical answer against the gold answer; each step decides or leaves it to the next, dearer one."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.decorators import verifier
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case, Verdict
from grpo.rewards.answer_text import shortened
from grpo.rewards.math.answer import MARKUP, Statement, plain, statement
from grpo.rewards.math.choice import chosen_letter, chosen_letters, gold_letter
from grpo.rewards.math.claim import (
    assignments,
    claim,
    counted_list,
    formulas,
    groups,
    is_set,
    listed_values,
    several,
    without_quantifier,
    without_quantifiers,
)
from grpo.rewards.math.cue import behind_cue, correction, last_words, words_behind_cue
from grpo.rewards.math.dates import last_date, same_date
from grpo.rewards.math.definition import same_argument
from grpo.rewards.math.gold import Gold, marked, read_gold
from grpo.rewards.math.guard import hostile
from grpo.rewards.math.normalize import choice_label, normalized, without_name
from grpo.rewards.math.notations import proportion, same_numeral, same_residue
from grpo.rewards.math.number import is_list, same_digits, same_number, term, unclear
from grpo.rewards.math.objection import objection, repeats
from grpo.rewards.math.process import SECONDS, Undecided, Unreadable, compare
from grpo.rewards.math.twice import Twice, equivalent_forms, measured_formula
from grpo.rewards.numbers.adjuncts import main_clause
from grpo.rewards.numbers.quantity import magnitude, same_amount, turns, unit, unit_ratio
from grpo.rewards.words import says

TIMEOUT = 60.0
"""Seconds until the scoring engine ends the row: far more than the comparison and the start of its process may take."""

_END = 1000
_LONGEST_LIMIT = 3600.0
_MOST_DECIMALS = 12
_DEFINED = lazy_pattern(r"\s*[A-Za-z]_(?:\w|\{[^{}=]{1,30}\})\s*=\s*([^=]+)")
_PROSE = lazy_pattern(r"[^\W\d_]{2,}\s+[^\W\d_]{2,}")
_CUE = lazy_pattern(r"\banswer\s*(?:is|:)\s*", re.IGNORECASE)

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
    Case("\\boxed{9^{9^{9}}}", {"answer": "72"}, False),
    Case("The answer is x^2+1.", {"answer": "x^2+1"}, True),
    Case("**Answer:** (1, 2)", {"answer": "(1,2)"}, True),
    Case("<think>It is 72.</think><answer></answer>", {"answer": "72"}, False),
    Case("\\boxed{2}", {"answer": ["1", "2"]}, True),
    Case("\\boxed{1, 2}", {"answer": ["1", "2"]}, False),
    Case("\\boxed{72}", {"answer": ""}, None),
]


def prepare(*, limit: float, precision: int, **_others: object) -> None:
    """Refuses limits and precisions that cannot work. Raises OptionError: `limit` or `precision` is out of range."""
    if not 0 < limit <= _LONGEST_LIMIT:
        raise OptionError(f"the option 'limit' is {limit:g}; set seconds above 0 and up to {_LONGEST_LIMIT:g}.")
    if not 0 <= precision <= _MOST_DECIMALS:
        raise OptionError(f"the option 'precision' is {precision}; set decimals from 0 to {_MOST_DECIMALS}.")


@verifier(version=6, isolation="process", timeout=TIMEOUT, cases=CASES, prepare=prepare)
def math(
    completion: str,
    answer: str | list[str],
    question: str | None = None,
    *,
    precision: int = 6,
    strict: bool = True,
    relations: bool = True,
    evaluated: bool = True,
    limit: float = SECONDS,
) -> Verdict:
    """Judges whether the stated answer is mathematically the same as the gold.

    The answer stands after the reasoning, in the last of an `<answer>` or `<SOLUTION>` block, a line `#### ...`,
    `\\boxed{}` and "the final answer is ..."; without any of them, behind the last cue of the prose ("The answer is
    x^2+1.", "**Answer:** (1, 2)", "So the area is 25\u03c0."), else at the end of the text. When the last block or box
    is empty and nothing follows it, nothing is stated. The first of these decides:
    1. a gold that is empty, or neither text nor number: undecided; nothing stated, or the question alone: wrong;
    2. the same text but for spacing and LaTeX that does not matter: right;
    3. a gold that is a time of day or a date: right for the same moment, else wrong; a gold in words: right when they
       are the same but for case, punctuation and articles ("Yes, because ..." says yes), else wrong;
    4. a gold that is one capital letter, or several: the letters chosen decide;
    5. a congruence: the same remainder is right, others wrong; so are the digits of a number with a base (`1011_2`);
    6. an expression that would hang computer algebra (huge powers, factorials, numbers, deep brackets): wrong;
    7. several values where the gold is one, a denial, a question, a problem left to compute (`\\int`, `\\sum`, 6*12),
       an expression of the question: wrong;
    8. a gold and an answer that are plain numbers: equal, or equal to `precision` decimals where one is a decimal, in
       units that agree where both name one;
    9. expressions at points, sequences with dots, then math-verify on sympy: simplified, to `precision` decimals, sets,
       intervals, matrices, relations, units, percent; an answer with a variable is wrong where the gold has none, and
       wrong when it exhausts the time limit or cannot be read at all, undecided when the gold does;
    10. a gold that is no mathematics either: wrong.

    Args:
        completion: the text.
        answer: the gold: LaTeX, a number, a text, or a worked solution that ends in `#### 72` or holds `\\boxed{}`. Of
            a list of golds any one will do.
        question: the question, where the rows have it; repeating an expression of it is then no answer.
        precision: decimal places to which numbers are compared.
        strict: False lets variables have other names, and a set equal a tuple.
        relations: an inequality may be the answer to an interval in the gold (the other way round it always may).
        evaluated: False lets the answer be a problem left to compute, or an expression of the question.
        limit: seconds of processor time for one comparison by computer algebra, and a tenth of its wall time.
    """
    judged = partial(
        _judged,
        completion,
        question,
        precision=precision,
        strict=strict,
        relations=relations,
        evaluated=evaluated,
        limit=limit,
    )
    if not isinstance(answer, list | tuple):
        return judged(answer)
    verdicts = [judged(gold) for gold in answer if read_gold(gold) is not None]
    if not verdicts:
        return Verdict(None, None, "none of the gold answers is a text or a number")
    return min(verdicts, key=lambda verdict: (True, None, False).index(verdict.ok))


def _judged(
    completion: str,
    question: str | None,
    answer: object,
    *,
    precision: int,
    strict: bool,
    relations: bool,
    evaluated: bool,
    limit: float,
) -> Verdict:
    gold = read_gold(answer)
    if gold is None:
        return Verdict(None, None, "the gold answer is empty or not a text or a number")
    prediction = None if repeats(completion, question) else statement(completion)
    if prediction is None:
        return Verdict(False, None, "nothing is stated")
    corrected = correction(completion) if gold.words is not None and prediction.parts else None
    if corrected is not None:
        prediction = Statement(corrected, "prose")
    if not prediction.parts:
        prediction = replace(prediction, text=_unconditional(prediction.text, gold.text))
        together = assignments(claim(prediction)) if "," in gold.core else None
        prediction = prediction if together is None else replace(prediction, text=together, parts=(together,))
    listed = gold.number is not None and not prediction.parts and ":" in prediction.text[-_END:]
    if listed and counted_list(claim(prediction)) == gold.core:
        return Verdict(True, shortened(claim(prediction)), "as many as the gold are counted and listed")
    if gold.number is not None and gold.plain != plain(prediction.text) and unclear(prediction):
        return Verdict(False, shortened(claim(prediction)), f"no one number is stated ({prediction.form})")
    if gold.words is None and gold.letter is None and not gold.moment:
        prediction = behind_cue(prediction, gold.text)
    extracted = shortened(prediction.parts[-1] if prediction.parts else claim(prediction))
    if gold.number is not None and len(prediction.parts) == 1:
        same, how = same_digits(prediction.parts[0], gold.core, gold.number, precision)
        if same is not None:
            return Verdict(same, extracted, how or f"the text of the gold ({prediction.form})")
    prediction = _normalized(
        prediction, labels=gold.letter is None and gold.letters is None, names=without_name(gold.core) == gold.core
    )
    content = plain(prediction.parts[0] if len(prediction.parts) == 1 else prediction.text)
    if gold.label and gold_letter(content) == gold.label:
        return Verdict(True, extracted, f"the letter of the gold ({prediction.form})")
    if gold.plain == content:
        return Verdict(True, extracted, f"the text of the gold ({prediction.form})")
    if not prediction.parts and gold.plain in map(plain, words_behind_cue(prediction.text)[:1]):
        return Verdict(True, extracted, f"the text of the gold ({prediction.form})")
    if gold.values is not None and len(prediction.parts) < 2 and gold.values == groups(marked(prediction.text)):
        return Verdict(True, extracted, f"the values of the gold ({prediction.form})")
    moment = None
    if gold.moment:
        claimed = last_date(claim(prediction))
        stated = [_in_words(prediction)] if prediction.parts else [*words_behind_cue(prediction.text)[:1], claimed]
        moment = next((equal for equal in (same_date(gold.text, text) for text in stated) if equal is not None), None)
    if moment is not None:
        return Verdict(moment, extracted, f"{'the' if moment else 'not the'} time or date of the gold")
    if gold.moment and gold.number is None and not prediction.parts:
        prediction = _normalized(behind_cue(prediction, gold.text), labels=False, names=False)
        if prediction.parts and gold.plain == plain(prediction.parts[0]):
            return Verdict(True, extracted, "the time of the gold")
    measured = same_amount(claim(prediction), gold.core) if gold.amount else None
    if measured is not None:
        return Verdict(measured, extracted, f"{'the' if measured else 'not the'} quantity of the gold")
    letters = chosen_letters(prediction) if gold.letters else None
    if letters is not None:
        return Verdict(letters == gold.letters, "".join(sorted(letters)), f"the letters chosen ({prediction.form})")
    if gold.words is not None:
        readings = () if prediction.parts else words_behind_cue(prediction.text) or last_words(prediction)
        same = any(says(reading, gold.words) for reading in (_in_words(prediction), *readings))
        return Verdict(same, extracted, "the words of the gold" if same else "other words than the gold's")
    if gold.letter:
        chosen = chosen_letter(prediction)
        return Verdict(chosen == gold.letter, chosen, f"the letter chosen ({prediction.form})")
    core = prediction.parts[0] if len(prediction.parts) == 1 else _last_formula(prediction)
    residue = same_residue(gold.core, core)
    if residue is not None:
        return Verdict(residue, extracted, f"{'the' if residue else 'not the'} remainder of the gold")
    digits = same_numeral(gold.core, core)
    if digits is not None:
        return Verdict(digits, extracted, f"{'the' if digits else 'not the'} digits and the base of the gold")
    if gold.number is not None and any(map(is_list, prediction.parts)):
        return Verdict(False, extracted, f"several answers where one is asked ({prediction.form})")
    reason = next(filter(None, map(hostile, prediction.parts or (claim(prediction),))), None)
    if reason is not None:
        return _refused(gold, extracted, reason)
    wrong = objection(prediction, gold.core, gold.number, question=question, evaluated=evaluated)
    right = None
    if wrong is not None:
        verdict = Verdict(False, extracted, f"{wrong} ({prediction.form})")
    elif gold.number is not None:
        right = same_number(prediction, gold.number, gold.text, precision)
        verdict = Verdict(right, extracted, f"{'equals' if right else 'differs from'} the number {gold.number.text}")
    options: dict[str, Any] = {"precision": precision, "strict": strict, "relations": relations, "limit": limit}
    if wrong is None and right is None:
        verdict = _algebra(gold, prediction, extracted, **options)
    twice = equivalent_forms(prediction, gold.text) if verdict.ok is False and not several(gold.core) else None
    return verdict if twice is None else _either(twice, answer, verdict, evaluated=evaluated, **options)


def _either(twice: Twice, answer: object, verdict: Verdict, *, precision: int, **options: Any) -> Verdict:
    """Right where a value and the same in other words are equal and one is the gold; else the verdict given."""

    def same(value: str, other: object, places: int) -> bool:
        return _judged(f"<answer>{value}</answer>", None, other, precision=places, **options).ok is True

    places = precision if twice.places is None else min(precision, twice.places)
    if not same(twice.first, twice.second, places):
        return verdict
    right = any(same(value, answer, precision) for value in (twice.first, twice.second))
    return replace(verdict, ok=True, reason="one answer in two ways, and the gold") if right else verdict


def _algebra(gold: Gold, prediction: Statement, extracted: str, *, limit: float, **options: Any) -> Verdict:
    reason = None if prediction.parts else hostile(prediction.text[-_END:])
    if reason is not None:
        return _refused(gold, extracted, reason)
    text = prediction.parts[0] if prediction.form in ("tag", "hash") else prediction.text
    if not prediction.parts and not formulas(text):
        text = claim(prediction)
        if gold.number is None and "\\" not in text and not several(gold.core) and _PROSE.search(text):
            return Verdict(False, extracted, f"no mathematics alone is stated ({prediction.form})")
    core = prediction.parts[0] if len(prediction.parts) == 1 else _last_formula(prediction)
    wanted = term(gold.text) or gold.text
    bare = without_quantifiers(gold.core, core)
    defined = same_argument(*bare) or (bare if bare != (gold.core, core) else None)
    if defined is not None:
        wanted, core = defined
        text = f"${core}$"
    ratio = proportion(gold.core)
    if ratio is not None:
        wanted, core = ratio, proportion(core) or core
        text = f"${core}$"
    named = _DEFINED.fullmatch(core) if "=" not in gold.text else None
    if named is not None:
        core = named[1]
        text = f"${core}$"
    listed = listed_values(claim(prediction)) if not prediction.parts and several(gold.core) else None
    if len(prediction.parts) > 1 and several(gold.core) and not is_set(gold.core):
        listed = ",".join(prediction.parts)
    united = measured_formula(claim(prediction)) if not prediction.parts and unit(gold.core) is not None else None
    if united is not None:
        core, text = united, rf"\boxed{{{united}}}"
    elif listed is not None:
        text = core = rf"\boxed{{{listed}}}"
    try:
        same = compare("same", wanted, text, core=core, seconds=limit, **options)
    except Unreadable as error:
        return _refused(gold, extracted, str(error))
    except Undecided as error:
        return Verdict(None, extracted, str(error))
    if same is None:
        return Verdict(False, extracted, "the gold is no mathematics, and the answer is another text")
    if same is False and unit(gold.core) is not None and unit(core) == unit(gold.core):
        size = magnitude(core)
        same = bool(compare("same", magnitude(gold.core), size, core=size, seconds=limit, **options))
    if same and unit_ratio(core, gold.core) != 1 and not turns(core, gold.core):
        return Verdict(False, extracted, "another unit than the gold's")
    return Verdict(same, extracted, f"{'the same as' if same else 'differs from'} the gold by math-verify")


def _refused(gold: Gold, extracted: str, reason: str) -> Verdict:
    """Wrong for what no one would write as an answer, unless the gold is such a thing itself."""
    return Verdict(None if hostile(gold.text) else False, extracted, f"not compared: {reason}")


def _unconditional(text: str, gold: str) -> str:
    """Removes what the end says besides the value: "for all real x", "attained at x = 2", "in 4 years"."""
    if "=" not in gold:
        text = main_clause(text)
    return text if "all" in gold else without_quantifier(text)


def _normalized(prediction: Statement, *, labels: bool, names: bool) -> Statement:
    """Spells marked contents as usual, without a choice's letter (`labels`) or words and a colon (`names`)."""
    parts = prediction.parts
    if names and len(parts) == 1:
        parts = (without_name(parts[0]),)
    parts = tuple(map(normalized, parts))
    if labels and len(parts) == 1:
        parts = (choice_label(parts[0])[1],)
    text = prediction.text
    for old, new in zip(prediction.parts, parts, strict=True):
        text = text if old == new else text.replace(old, new)
    return prediction if parts == prediction.parts else replace(prediction, text=text, parts=parts)


def _last_formula(prediction: Statement) -> str:
    clause = claim(prediction)
    return (formulas(clause) or [clause])[-1]


def _in_words(prediction: Statement) -> str:
    if prediction.parts:
        return MARKUP.sub(r"\1", prediction.parts[0]) if len(prediction.parts) == 1 else ""
    cues = list(_CUE.finditer(prediction.text))
    return MARKUP.sub(r"\1", prediction.text[cues[-1].end() :] if cues else prediction.text)
