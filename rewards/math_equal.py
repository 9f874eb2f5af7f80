"""Whether two answers are the same mathematics: gold and statement as text in, True, False or None (cannot say) out.

The only module that imports math-verify, latex2sympy and sympy. It has no time limit of its own (those of math-verify
need the main thread and are switched off): it runs in the process that `math_process` starts and ends.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from grpo.rewards.math_ascii import commands, latex_of
from grpo.rewards.math_guard import LONGEST

_ANCHOR = re.compile(r"\$|\\\(|\\\[|\\f?boxed|\\begin\{align")
_PLAIN = re.compile(r"[-+]?[\d.,\s/%()*^+-]+")
_LIST = re.compile(r",\s|,\d+,\d{1,2}(?!\d)")
_REPEATING = re.compile(
    r"(?P<whole>\d{0,9})\.(?P<fixed>\d{0,9})"
    r"(?:\\dot\s?\{?(?P<first>\d)\}?(?P<middle>\d{0,9})\\dot\s?\{?(?P<last>\d)\}?"
    r"|\\(?:overline|bar|dot)\s?(?:\{(?P<all>\d{1,9})\}|(?P<one>\d)))"
)
_ARGUMENT = r"(\\(?!frac|dfrac|tfrac|cfrac|sqrt|left|text|mathrm)[a-zA-Z]+|[0-9a-zA-Z])"
_FIRST_BARE = re.compile(rf"(\\[dtc]?frac)\s*{_ARGUMENT}\s*(?=[{{\\0-9a-zA-Z])")
_SECOND_BARE = re.compile(rf"(\\[dtc]?frac\s*\{{[^{{}}]*\}})\s*{_ARGUMENT}")
_ROOT_BARE = re.compile(rf"(\\sqrt)\s*{_ARGUMENT}")
_WORDED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mbox)(?![a-z])|\s[a-zA-Z]{2,}[\s.$}]*\Z")
_EMPTY = re.compile(r"\\varnothing(?![a-zA-Z])")
_NUMBER_SET = re.compile(r"\\mathbb\s*([A-Z])(?![a-zA-Z])")
_UPRIGHT = re.compile(r"\\mathrm\s?\{\s*([eid])\s*\}")
_PRODUCT_OF_WORDS = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}\s+[a-zA-Z]{2,}")
_CHOPPED = 1e-12


def same_mathematics(gold: str, statement: str, *, precision: int, strict: bool, relations: bool) -> bool | None:
    """Compares two answers by math-verify.

    Args:
        gold: the gold answer, as LaTeX or text.
        statement: the statement of the answer, as LaTeX or text.
        precision: decimal places to which numbers are compared; significant digits where the gold is so small that
            fewer than two of its digits would be left.
        strict: variables keep their names, and sets differ from tuples.
        relations: a relation in the statement may equal a set in the gold (the other way round it always may).

    Returns:
        None when the gold cannot be read as mathematics. False, too, when the stack or the memory did not suffice
        inside math-verify, which does not say so.
    """
    _silence()
    golds = [one for one in _gold(gold) if not isinstance(one, str)]
    if not golds:
        return None
    found = _read(statement)
    settings = {"float_rounding": precision, "strict": strict, "allow_set_relation_comp": relations}
    return _verify(list(_gold(gold)), found, **settings) and _close_enough(golds[0], found, precision)


def read_latex(latex: str) -> Any:
    """Returns a LaTeX expression as a sympy object, in the reading that answers are compared in.

    Raises:
        Exception: the text is no expression that latex2sympy knows.
    """
    from latex2sympy2_extended import latex2sympy
    from sympy import sympify

    return sympify(latex2sympy(latex))


def trl_accuracy(completion: str, solution: str) -> bool | None:
    """TRL's accuracy: LaTeX in the completion, a box first, the first match only; None for a gold it cannot read."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig

    _silence()
    config = LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=True),
        boxed_match_priority=0,
        try_extract_without_anchor=False,
    )
    gold = _parse(solution)
    return _verify(gold, _parse(completion, config, extraction_mode="first_match")) if gold else None


def open_r1_accuracy(completion: str, solution: str) -> bool | None:
    """open-r1's accuracy: as TRL's, but for how the LaTeX of the completion is normalised."""
    _silence()
    gold = _parse(solution, extraction_mode="first_match")
    return _verify(gold, _open_r1_answer(completion)) if gold else None


def open_r1_latex(completion: str, solution: str) -> bool | None:
    """What open-r1's length rewards call right: the gold must be LaTeX too, and gold and completion change places."""
    from math_verify import LatexExtractionConfig

    _silence()
    gold = _parse(solution, LatexExtractionConfig(), extraction_mode="first_match")
    return _verify(_open_r1_answer(completion), gold) if gold else None


def _open_r1_answer(completion: str) -> list[Any]:
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig

    config = LatexExtractionConfig(
        normalization_config=NormalizationConfig(
            nits=False, malformed_operators=False, basic_latex=True, boxed="all", units=True
        ),
        boxed_match_priority=0,
        try_extract_without_anchor=False,
    )
    return _parse(completion, config, extraction_mode="first_match")


def _silence() -> None:
    """Keeps math-verify from warning of its own time limits, which are off."""
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.ERROR)


@lru_cache(maxsize=256)
def _gold(gold: str) -> tuple[Any, ...]:
    return tuple(_read(gold))


def _read(text: str) -> list[Any]:
    """Reads a text with mathematics in it, or one that is all mathematics and not marked as such."""
    text = _REPEATING.sub(_fraction, _UPRIGHT.sub(r"{\1}", text))
    text = _SECOND_BARE.sub(r"\1{\2}", _FIRST_BARE.sub(r"\1{\2}", _ROOT_BARE.sub(r"\1{\2}", text)))
    text = _NUMBER_SET.sub(r"\\mathbb{\1}", _EMPTY.sub(r"\\emptyset", text))
    if _ANCHOR.search(text):
        return _parse(commands(text))
    found = [] if _is_prose(text) else _parse(f"${commands(latex_of(text))}$")
    if not any(not isinstance(one, str) for one in found) or (_PLAIN.fullmatch(text) and not _LIST.search(text)):
        found = found + _parse(text)
    return found


def _fraction(match: re.Match[str]) -> str:
    """A repeating decimal as a fraction: 0.1\\overline{6} is (16 - 1) / 90."""
    whole, fixed = match["whole"], match["fixed"]
    repeated = match["all"] or match["one"] or match["first"] + match["middle"] + match["last"]
    upper = int((whole + fixed + repeated) or "0") - int((whole + fixed) or "0")
    return rf"\frac{{{upper}}}{{{'9' * len(repeated)}{'0' * len(fixed)}}}"


def _is_prose(text: str) -> bool:
    """True for several words in a row, which LaTeX would read as a product of letters."""
    return bool(_PRODUCT_OF_WORDS.search(text)) or len(text) > LONGEST


def _close_enough(gold: Any, found: list[Any], precision: int) -> bool:
    """False when a gold number is so small that rounding alone made an answer equal to it."""
    value = _value(gold)
    if value is None or abs(value) >= 10.0 ** (2 - precision):
        return True
    allowed = abs(value) * 10.0 ** (1 - precision) if value else _CHOPPED
    values = [number for number in map(_value, found) if number is not None]
    return not values or any(abs(number - value) <= allowed for number in values)


def _value(expression: Any) -> complex | None:
    """An expression without variables, or the right side of an assignment, as a number."""
    from math_verify.grader import unwrap_eq
    from sympy import Expr

    if isinstance(expression, str):
        return None
    expression = unwrap_eq(expression)
    if not isinstance(expression, Expr) or expression.free_symbols:
        return None
    try:
        return complex(expression.doit().evalf(20))
    except (TypeError, ValueError, OverflowError):
        return None


def _parse(text: str, *configs: Any, extraction_mode: Any = "any_match") -> list[Any]:
    from math_verify import parse

    if configs:
        return list(parse(text, extraction_config=configs, extraction_mode=extraction_mode, parsing_timeout=None))
    found = list(parse(text, extraction_mode=extraction_mode, parsing_timeout=None))
    if all(map(_balanced, found)) and (_WORDED.search(text) or not _has_variables(found)):
        return found
    whole = _parse(text, *_without_units(), extraction_mode=extraction_mode)
    return whole if any(not isinstance(one, str) for one in whole) or not all(map(_balanced, found)) else found


def _has_variables(found: list[Any]) -> bool:
    """True for an expression with variables, of which a last letter taken for a unit (abc) would be one."""
    expressions = [one for one in found if not isinstance(one, str)]
    return not expressions or any(getattr(one, "free_symbols", None) for one in expressions)


def _balanced(found: Any) -> bool:
    """False for an expression that lost a brace with what was taken for a unit, as in \\frac{1}{\\mathrm{m}}."""
    return not isinstance(found, str) or found.count("{") == found.count("}")


def _without_units() -> tuple[Any, ...]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig

    latex = LatexExtractionConfig()
    normal = replace(latex.normalization_config, units=False)
    return (replace(latex, normalization_config=normal), ExprExtractionConfig())


def _verify(gold: list[Any], found: list[Any], **settings: Any) -> bool:
    from math_verify import verify

    return bool(verify(gold, found, timeout_seconds=None, **settings))
