"""Spellings that its reader does not care for: what becomes the usual one, and what stays as it is."""

import pytest

from grpo.rewards.math.normalize import choice_label, normalized


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("0.333...", "\\frac{3}{9} "),
        ("0.1(6)", "\\frac{15}{90}"),
        ("0.142857142857\\ldots", "\\frac{142857}{999999} "),
        ("7\u200b2", "72"),
        ("\\textcolor{red}{\\frac{1}{2}}", "{\\frac{1}{2}}"),
        ("\\underline{5}", "{5}"),
        ("\\nicefrac{1}{2}", "\\frac{1}{2}"),
        ("\\left\\langle 1,2\\right\\rangle", "(1,2)"),
        ("]1,2]", "(1,2]"),
        ("\\left]-\\infty;\\frac{1}{2}\\right[", "(-\\infty,\\frac{1}{2})"),
        ("[1;2]", "[1,2]"),
        ("[[1,2],[3,4]]", "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"),
        ("\\text{The answer is }5", "5"),
        ("5,", "5"),
        ("5=x", "x=5"),
        ("3 to 4", "3:4"),
        ("8:30 a.m.", "8:30 AM"),
        ("all real numbers", "\\mathbb{R}"),
        ("\\text{no solution}", "\\emptyset"),
        ("seventy-two", "72"),
        ("five percent", "5\\%"),
    ],
)
def test_one_spelling_stands_for_all(text: str, usual: str) -> None:
    assert normalized(text) == usual


@pytest.mark.parametrize(
    "text",
    [
        "72",
        "3.14159",
        "[1,2],[3,4]",
        "[1,2]",
        "(1;2)",
        "\\mathbf{u}+2\\mathbf{v}",
        "$2 m$",
        "5\\,",
        "a",
        "1=2",
        "0.5(x)",
        "7\u202e2",
        "seventy-two apples",
        "[" * 3000,
        "9" * 100_000,
    ],
)
def test_what_is_usual_or_unknown_stays(text: str) -> None:
    assert normalized(text) == text


def test_the_letter_before_a_value_is_found() -> None:
    assert choice_label("\\textbf{(B)}\\ 12") == ("B", "12")
    assert choice_label("(B) 12") == ("B", "12")
    assert choice_label("(B)") == ("", "(B)")
    assert choice_label("(A)(B)") == ("", "(A)(B)")
