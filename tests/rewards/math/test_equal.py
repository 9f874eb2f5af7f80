"""Reading and comparing mathematics: LaTeX as recorded, mathematics without LaTeX, numbers near zero."""

from collections.abc import Callable
from typing import Any

import pytest
import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.sets import FiniteSet

from grpo.rewards.math.ascii import latex_of
from grpo.rewards.math.equal import same_mathematics

NAMES = {**vars(sympy), "FiniteSet": FiniteSet}


def same(gold: str, text: str, **options: Any) -> bool | None:
    return same_mathematics(gold, text, **{"precision": 6, "strict": True, "relations": False, **options})


@pytest.mark.slow
def test_latex_is_read_as_recorded(read_cases: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = read_cases("cases/latex_to_sympy.jsonl")
    assert len(rows) >= 340
    differing = []
    for row in rows:
        found = sympy.sympify(latex2sympy(row["latex"]))
        if sympy.srepr(found) != row["srepr"]:
            expected = sympy.sympify(eval(row["srepr"], NAMES))
            if found != expected and sympy.simplify(found.doit() - expected.doit()) != 0:
                differing.append((row["id"], row["latex"], found))
    assert differing == []


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("2*sqrt(3)", "2*\\sqrt{3}"),
        ("x**2", "x^{2}"),
        ("x^(n+1)", "x^{n+1}"),
        ("x^10", "x^{10}"),
        ("sqrt((x+1)*2)", "\\sqrt{(x+1)*2}"),
        ("abs(x)", "\\left|x\\right|"),
        ("pi/2", "\\pi /2"),
        ("sin(theta)", "\\sin (\\theta )"),
        ("asin(x)", "\\arcsin (x)"),
        ("√2", "\\sqrt{2}"),
        ("(-infinity, 1]", "(-\\infty , 1]"),
        ("pine", "pine"),
        ("\\frac{pi}{2}", "\\frac{pi}{2}"),
        ("((x)", "((x)"),
        ("x)", "x)"),
    ],
)
def test_mathematics_without_latex_becomes_latex(text: str, latex: str) -> None:
    assert latex_of(text) == latex


def test_numbers_near_zero_are_compared_by_their_digits() -> None:
    assert same("10^{-8}", "$0.00000001$") is True
    assert same("10^{-8}", "$0$") is False
    assert same("0", "$10^{-8}$") is False
    assert same("x = 10^{-8}", "$x = 2 \\cdot 10^{-8}$") is False
    assert same("\\sqrt{2} - \\sqrt{2}", "$0$") is True


def test_a_unit_in_a_denominator_does_not_cut_the_expression() -> None:
    assert same("1 - \\frac{1}{\\mathrm{e}}", "$1 + \\frac{1}{\\mathrm{e}}$") is False
    assert same("\\frac{1}{\\mathrm{m}}", "$\\frac{1}{\\mathrm{s}}$") is False
    assert same("5\\mathrm{cm}", "$5$") is True


def test_a_gold_that_is_no_mathematics_is_none() -> None:
    assert same("nothing of the kind at all", "$5$") is None


def test_comparing_says_nothing_of_the_time_limits_of_its_library(caplog: pytest.LogCaptureFixture) -> None:
    assert same("x", "$x$") is True
    assert caplog.records == []
