"""Decides whether two answers are mathematically equal; None if it cannot decide.

Only this module and `rewards/math/sets.py` import computer algebra (math-verify, latex2sympy, sympy). It has no time
limit here (math-verify's needs the main thread and is off): it runs in the process of `rewards/math/process.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from grpo.rewards.math.ascii import commands, latex_of
from grpo.rewards.math.guard import LONGEST
from grpo.rewards.math.normalize import normalized, repeating
from grpo.rewards.math.points import MANY, same_at_points
from grpo.rewards.math.sequence import same_sequence
from grpo.rewards.math.sets import same_set

_ANCHOR = re.compile(r"\$|\\\(|\\\[|\\f?boxed|\\begin\{align")
_PLAIN = re.compile(r"[-+]?[\d.,\s/%()*^+-]+")
_LIST = re.compile(r",[\s+-]|,\d+,\d{1,2}(?!\d)")
_REPEATING = re.compile(
    r"(?P<whole>\d{0,9})\.(?P<fixed>\d{0,9})"
    r"(?:\\dot\s?\{?(?P<first>\d)\}?(?P<middle>\d{0,9})\\dot\s?\{?(?P<last>\d)\}?"
    r"|\\(?:overline|bar|dot)\s?(?:\{(?P<all>\d{1,9})\}|(?P<digit>\d)))"
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
_BOX = re.compile(r"\\f?boxed\s?\{(.*)\}", re.DOTALL)
_TYPED_BOX = re.compile(r"(\\f?boxed\s?\{)([^{}\\]*)\}")
_ODD_ROOT = re.compile(r"\\sqrt\s?\[\s?([3579])\s?\]\s?\{\s?-\s?(\d+(?:\.\d+)?)\s?\}")
_DEGREES = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\s?\^\s?\{?\d\}?)?)\s*+(?:\\left\s?)?(?P<open>[({])?\s*+(?P<degrees>\d++(?:\.\d++)?)"
    r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z]))(?(open)\s*(?:\\right\s?)?[)}])"
)
_DEGREE = re.compile(r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z]))")
_PI = re.compile(r"\\pi(?![a-z])|\bpi\b|\u03c0")
_NATURAL = re.compile(r"\\ln(?![a-z])|\bln\b")
_LOGARITHM = re.compile(r"\\log(?![a-z])(?!\s*_)\s*|(?<![a-zA-Z\\])log(?![a-z_])\s*")
_SET = re.compile(
    r"(?:\\left\s?)?\\\{(?:(?!\\mid|\\in|\\le|\\ge|\\lt|\\gt)[^|:<>=])*,(?:(?!\\mid|\\in|\\le|\\ge)[^|:<>=])*\\\}"
)
_TUPLE = re.compile(r"(?:\\left\s?)?\([^()=]*,[^()=]*\)")
_CHOPPED = 1e-12
_DIGITS = (15, MANY)
"""Digits to which constants are compared: what few cannot tell apart is computed again, as 2**-2006 is no zero."""


def same_mathematics(
    gold: str, statement: str, *, core: str = "", precision: int, strict: bool, relations: bool
) -> bool | None:
    """Compares two answers by math-verify; then as sets of real numbers, with i as the imaginary unit, as vectors.

    `core`: the answer without the words around it, where known. `precision`: decimal places to which numbers are
    compared; significant digits where the gold is so small that fewer than two would be left. `strict`: variables keep
    their names, and sets differ from tuples. `relations`: a relation in the statement may equal a set in the gold (the
    other way round it always may). Returns None when the gold cannot be read as mathematics. False, too, when the stack
    or the memory did not suffice inside math-verify, which does not say so.
    """
    _silence()
    gold, statement, core = _unified_logarithms(gold, statement, core)
    sequence = same_sequence(_content(gold), _content(core or statement), _read)
    if sequence is not None:
        return sequence
    kinds = [_kind(text.strip(" $")) for text in (gold, core or statement)]
    if strict and set(kinds) == {"set", "tuple"}:
        return False
    golds = [reading for reading in _gold(gold) if not isinstance(reading, str)]
    if not golds:
        return None
    answers = _read(statement)
    settings = {"float_rounding": precision, "strict": strict}
    at_points = _at_points(golds, answers) if strict else None
    if at_points or (
        at_points is None
        and all(_verify(list(_gold(gold)), answers, **settings, numeric_precision=digits) for digits in _DIGITS)
    ):
        return _close_enough(golds[0], answers, precision)
    angle = _as_radians(gold, core or statement)
    if angle is not None:
        return _verify(_read(angle[0]), _read(angle[1]), **settings)
    sets = same_set(_content(gold), _content(core or statement), _read, relations=relations)
    if sets is not None:
        return sets
    readings = _otherwise(golds, answers)
    return any(
        _verify(wanted, given, **settings) and _close_enough(wanted[0], given, precision) for wanted, given in readings
    )


def _kind(text: str) -> str:
    return "set" if _SET.fullmatch(text) else "tuple" if _TUPLE.fullmatch(text) else ""


def _unified_logarithms(gold: str, *texts: str) -> list[str]:
    """`\\log` becomes `\\ln` where the other text writes that: then there is one logarithm."""
    answer = texts[-1] or texts[0]
    natural = [_NATURAL.search(text) is not None for text in (gold, answer)]
    plain = [_LOGARITHM.search(text) is not None for text in (gold, answer)]
    unified = natural[0] != natural[1] and plain[natural[0]] and not plain[natural[1]]
    return [_LOGARITHM.sub(r"\\ln ", text) if unified else text for text in (gold, *texts)]


def _at_points(golds: list[Any], answers: list[Any]) -> bool | None:
    """True for one reading with equal values at points, False if all differ, or None."""
    readings = [same_at_points(golds[0], answer) for answer in answers if not isinstance(answer, str)]
    return True if True in readings else None if None in readings or not readings else False


def _as_radians(gold: str, text: str) -> tuple[str, str] | None:
    """Both angles in radians, if one is in degrees and the other a multiple of pi; else None."""
    texts = [commands(_content(angle)) for angle in (gold, text)]
    in_degrees = [_DEGREE.search(angle) is not None for angle in texts]
    multiples = [_PI.search(angle) is not None for angle in texts]
    if in_degrees[0] == in_degrees[1] or in_degrees != multiples[::-1]:
        return None
    wanted, given = (_DEGREE.sub(lambda _: r" \cdot \frac{\pi}{180}", angle) for angle in texts)
    return f"${wanted}$", f"${given}$"


def _otherwise(golds: list[Any], answers: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Other readings: `i` as the imaginary unit, a column or row as a tuple."""
    answers = [answer for answer in answers if not isinstance(answer, str)]
    if any(map(_has_i, (*golds, *answers))):
        golds, answers = list(map(_imaginary, golds)), list(map(_imaginary, answers))
        yield golds, answers
        yield list(map(_polar, golds)), list(map(_polar, answers))
    yield from _as_tuples(golds, answers)


def _has_i(expression: Any) -> bool:
    return any(symbol.name == "i" for symbol in getattr(expression, "free_symbols", ()))


def _imaginary(expression: Any) -> Any:
    from sympy import I

    units = {symbol: I for symbol in getattr(expression, "free_symbols", ()) if symbol.name == "i"}
    return expression.subs(units) if units else expression


def _polar(expression: Any) -> Any:
    from sympy import Expr, cos, exp, expand

    return expand(expression.rewrite(exp).rewrite(cos)) if isinstance(expression, Expr) else expression


def _as_tuples(golds: list[Any], answers: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """A vector beside a tuple; a pair in round brackets is read as an interval."""
    from sympy import Interval, MatrixBase, Tuple

    def flat(value: Any) -> Any:
        if isinstance(value, MatrixBase) and 1 in value.shape and len(value) > 1:
            return Tuple(*value)
        open_pair = isinstance(value, Interval) and value.left_open and value.right_open
        return Tuple(value.start, value.end) if open_pair else value

    kinds = [any(isinstance(expression, MatrixBase) for expression in side) for side in (golds, answers)]
    if kinds[0] != kinds[1]:
        yield list(map(flat, golds)), list(map(flat, answers))


def _content(text: str) -> str:
    text = text.strip().strip("$").strip()
    box = _BOX.fullmatch(text)
    return latex_of(normalized(box[1]) if box else text)


def trl_accuracy(completion: str, solution: str) -> bool | None:
    """TRL's accuracy: LaTeX in the completion, a box first, the first match only; None for a gold it cannot read."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig

    _silence()
    config = LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=True), boxed_match_priority=0, try_extract_without_anchor=False
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
    text = _TYPED_BOX.sub(lambda box: f"{box[1]}{latex_of(box[2])}}}", text)
    text = _ODD_ROOT.sub(r"{-\\sqrt[\1]{\2}}", text)
    if "circ" in text or "\u00b0" in text:
        text = _DEGREES.sub(r"\1{\\frac{\g<degrees>\\pi}{180}}", commands(text))
    text = _plus_minus(text) if "\\pm" in text else text
    text = _SECOND_BARE.sub(r"\1{\2}", _FIRST_BARE.sub(r"\1{\2}", _ROOT_BARE.sub(r"\1{\2}", text)))
    text = _NUMBER_SET.sub(r"\\mathbb{\1}", _EMPTY.sub(r"\\emptyset", text))
    if _ANCHOR.search(text):
        return _parse(commands(text))
    readings = [] if _is_prose(text) else _parse(f"${commands(latex_of(text))}$")
    if not any(not isinstance(reading, str) for reading in readings) or (
        _PLAIN.fullmatch(text) and not _LIST.search(text)
    ):
        readings = readings + _parse(text)
    return readings


def _fraction(match: re.Match[str]) -> str:
    """A repeating decimal as a fraction: 0.1\\overline{6} is (16 - 1) / 90."""
    repeated = match["all"] or match["digit"] or match["first"] + match["middle"] + match["last"]
    return repeating(match["whole"], match["fixed"], repeated)


def _plus_minus(text: str) -> str:
    """Writes out a plus-minus inside braces, as in \\frac{1 \\pm 2}{3}; elsewhere math-verify knows it."""
    core = text.strip().strip("$").strip()
    box = _BOX.fullmatch(core)
    core = box[1] if box else core
    at = core.find("\\pm")
    if core.count("\\pm") != 1 or "\\mp" in core or core[:at].count("{") == core[:at].count("}") or "," in core:
        return text
    plus, minus = core.replace("\\pm", "+"), core.replace("\\pm", "-")
    return rf"\boxed{{{plus},{minus}}}" if box else f"${plus},{minus}$"


def _is_prose(text: str) -> bool:
    """True for several words in a row, which LaTeX would read as a product of letters."""
    return bool(_PRODUCT_OF_WORDS.search(text)) or len(text) > LONGEST


def _close_enough(gold: Any, answers: list[Any], precision: int) -> bool:
    """False when a gold number is so small that rounding alone made an answer equal to it."""
    value = _value(gold)
    if value is None or abs(value) >= 10.0 ** (2 - precision):
        return True
    allowed = abs(value) * 10.0 ** (1 - precision) if value else _CHOPPED
    values = [number for number in map(_value, answers) if number is not None]
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
    parsed = list(parse(text, extraction_mode=extraction_mode, parsing_timeout=None))
    if all(map(_balanced, parsed)) and (_WORDED.search(text) or not _has_variables(parsed)):
        return parsed
    whole = _parse(text, *_without_units(), extraction_mode=extraction_mode)
    return (
        whole
        if any(not isinstance(expression, str) for expression in whole) or not all(map(_balanced, parsed))
        else parsed
    )


def _has_variables(parsed: list[Any]) -> bool:
    """True for an expression with variables, of which a last letter taken for a unit (abc) would be one."""
    expressions = [expression for expression in parsed if not isinstance(expression, str)]
    return not expressions or any(getattr(expression, "free_symbols", None) for expression in expressions)


def _balanced(expression: Any) -> bool:
    """False for an expression that lost a brace with what was taken for a unit, as in \\frac{1}{\\mathrm{m}}."""
    return not isinstance(expression, str) or expression.count("{") == expression.count("}")


def _without_units() -> tuple[Any, ...]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig

    latex = LatexExtractionConfig()
    normal = replace(latex.normalization_config, units=False)
    return (replace(latex, normalization_config=normal), ExprExtractionConfig())


def _verify(gold: list[Any], answers: list[Any], **settings: Any) -> bool:
    from math_verify import verify

    return bool(verify(gold, answers, timeout_seconds=None, **settings))
