"""What stands beside a number and changes its value."""

import pytest

from grpo.rewards.gsm8k.verifier import gsm8k
from grpo.rewards.math.verifier import math

EXPRESSIONS = {
    "roots": [
        "4\\sqrt2", "4\\sqrt{2}", "4 \\sqrt 2", "4\\sqrt(2)", "4\u221a2", "4 sqrt(2)",
        "4\\sqrt[3]{5}", "4\\left(\\sqrt2\\right)",
    ],
    "constants": ["4\u03c0", "4\\pi", "4 \\pi", "4 pi", "4\\theta", "4e", "4i", "4\\infty"],
    "functions": ["4\\log 2", "4\\ln(3)", "4 \\sin x", "4log(2)", "4 cos(x)", "\\log_2 4", "\\ln 4"],
    "variables": ["4x", "4y", "4n", "4 x", "4xy", "4y^2", "4x^{2}", "$4x$", "4\\frac{x}{2}"],
    "factorials": ["4!", "4! ", "$4!$", "4!/1"],
    "products and sums left open": [
        "4\\cdot\\sqrt{2}", "4 \\times x", "4*x", "4 + x", "4 - y", "4 + 0x", "4/x", "x + 4", "2x + 4", "3 + 4i",
        "4 + 3i", "\\sqrt{2} + 4", "4(x+1)", "4(a)", "4ab", "4|x|", "4\\vec{a}", "4 \\cdot \\pi",
    ],
    "words": ["4 mod 100", "4 \\bmod 7", "4 factorial", "4 squared", "4 to the power of 2", "4 choose 2"],
}  # fmt: skip
PLAIN = [
    "4m", "4 m", "4g", "4kg", "4h", "4 L", "4 cm", "4 cm^2", "4\\text{ apples}", "4^\\circ", "4\u00b0C", "4 a day",
    "4 per day", "4/day", "$4/hour", "4 x 1 = 4", "x = 4", "4 = x", "4.", "4 (four)", "4%", "4 apples!",
    "4 \\text{mi}/\\text{h}",
    "3 + 1 = 4", "4 pieces", "4 picnics", "4 square feet", "4 squared feet", "4 (clips)",
    "4 or 4", "4\\$",
]  # fmt: skip


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_a_number_within_an_expression_is_no_answer(kind: str) -> None:
    for text in EXPRESSIONS[kind]:
        assert gsm8k(f"\\boxed{{{text}}}", "4").ok is False, text
        assert gsm8k(f"<answer>{text}</answer>", "4").ok is False, text


@pytest.mark.parametrize("text", PLAIN)
def test_units_and_words_leave_a_number_as_it_is(text: str) -> None:
    assert gsm8k(f"<answer>{text}</answer>", "4").ok is True


@pytest.mark.parametrize(
    "text",
    [
        "She runs 2x faster, so it takes 4 hours.",
        "3x = 12, so x = 4",
        "So there are 4!",
        "In all it is 4 x 5 = 20 - 16 = 4.",
        "2y + 3 = 11, which gives y = 4.",
        "She drinks 4L.",
    ],
)
def test_expressions_on_the_way_do_not_hide_the_answer(text: str) -> None:
    assert gsm8k(text, "4").ok is True


def test_the_verifier_of_mathematics_still_computes_them() -> None:
    assert math("\\boxed{2\\sqrt{4}}", "4").ok is True
    assert math("The answer is $4\\sqrt{2}$.", "4\\sqrt{2}").ok is True
