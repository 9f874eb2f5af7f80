"""Forms of answers that are common and no plain number: said twice, counted in words, derived in displays, measured."""

import pytest

from grpo.rewards.gsm8k.verifier import gsm8k
from grpo.rewards.math.verifier import math

NUMBERS = [
    ("It takes 72 hours, or 3 days.", "72", True),
    ("It takes 72 hours, or 3 days.", "3", True),
    ("It takes 72 hours, or 4 days.", "72", False),
    ("It takes 200 minutes, which is 3 hours and 20 minutes.", "200", True),
    ("It takes 72 hours, or 3 days.", "71", False),
    ("The total cost is 72 dollars and 0 cents.", "72", True),
    ("The total cost is $72 and 50 cents.", "72.5", True),
    ("72 dollars and 0 cents", "0", False),
    ("The probability that both are red is 3 out of 7.", "3/7", True),
    ("The probability that both are red is 3 out of 7.", "7", False),
    ("So 3 out of 7 students passed.", "3", True),
    ("So 3 out of 7 students passed.", "7", False),
    ("So there are three solutions.", "3", True),
    ("So there are three solutions.", "2", False),
    ("One fourth of the cake is left.", "1/4", True),
    ("So there are two or three solutions.", "3", False),
    ("There are not three solutions.", "3", False),
    ("18 18 18", "18", False),
    ("somewhere in the range 10-20, e.g. 18", "18", False),
    ("The answer is 18.", "18", True),
    ("It takes 1.5 hours (90 minutes).", "1.5", True),
    ("It takes 90 minutes (1.5 hours).", "90", True),
    ("So it takes 90 minutes = 1.5 hours.", "1.5", True),
    ("So it takes 90 minutes = 1.5 hours.", "90", True),
    ("Total: $3, or 300 cents", "300", True),
    ("Total: 300 cents, or $3", "300", True),
    ("72 or 3", "72", False),
    ("<answer>72 hours or 3 days</answer>", "72", True),
    ("\\boxed{72 \\text{ hours or } 3 \\text{ days}}", "72", True),
    ("He has 3 apples left.\nSo that leaves one of them.", "3", True),
]
MATHEMATICS = [
    ("The limit does not exist.", "DNE", True),
    ("The limit does not exist.", "0", False),
    ("There are 3 solutions: -1, 0 and 1.", "3", True),
    ("There are 3 solutions: -1, 0 and 1.", "-1,0,1", True),
    ("There are 3 solutions: -1, 0 and 1.", "2", False),
    ("There are 4 solutions: -1, 0 and 1.", "4", False),
    ("The equation has three real roots: 1, 2, and 5.", "3", True),
    ("The equation has three real roots: 1, 2, and 5.", "5", False),
    ("The equation has three real roots: $1$, $2$, and $5$.", "3", True),
    ("$$y - 3 = -2(x - 2)$$ $$y = -2x + 7$$", "y=-2x+7", True),
    ("$$y - 3 = -2(x - 2)$$\n$$y = -2x + 7$$", "y=-2x+7", True),
    ("\\[2x=14\\]\n\\[x=7\\]", "7", True),
    ("$$x=71$$ $$x=72$$", "72", False),
    ("$$71$$ $$72$$", "72", False),
    ("$71$ $72$", "72", False),
    ("$$2x = 14$$ $$x = 7$$", "14", False),
    ("\\boxed{|x|>2}", "(-\\infty,-2)\\cup(2,\\infty)", True),
    ("\\boxed{|x|<2}", "(-2,2)", True),
    ("$|x| \\le 2$", "[-2,2]", True),
    ("\\boxed{|x|>3}", "(-\\infty,-2)\\cup(2,\\infty)", False),
    ("\\boxed{|x-1|<3}", "(-2,4)", False),
    ("\\boxed{-2<x<2}", "|x|<2", True),
    ("V = \\boxed{36\\pi\\ \\text{in}^3}", "36\\pi \\text{ cubic inches}", True),
    ("\\boxed{36 \\text{ in}^3}", "36 \\text{ cubic inches}", True),
    ("The volume is 36 in³.", "36 cubic inches", True),
    ("The volume is 36 cubic inches.", "36 \\text{ in}^3", True),
    ("\\boxed{36\\text{ in}}", "36\\text{ cm}", False),
    ("h = 6.63 \\times 10^{-34} J·s", "6.63e-34", True),
    ("h = 6.63 \\times 10^{-34} J·s", "6.63e-35", False),
    ("= 17^2 - 1", "288", False),
    ("\\boxed{17^2-1}", "288", False),
    ("\\boxed{3^{11}}", "177147", True),
    ("\\boxed{2^3 \\cdot 3^2}", "72", True),
    ("\\boxed{10^2}", "100", True),
    ("\\boxed{2^{10}-1}", "2^{10}-1", True),
    ("\\boxed{17^2-1=288}", "288", True),
    ("17\u00b2 \u2212 1", "288", False),
    ("\\boxed{\\{18\\}}", "18", True),
    ("So there are three solutions.", "3", True),
    ("So there are $3$ solutions.", "3", True),
    ("$E_k = \\frac12 m v^2$", "\\frac{1}{2}mv^2", True),
    ("\\boxed{x_1 = 5}", "5", True),
    ("\\boxed{-1+2^3}", "7", False),
    ("\\boxed{x^2-1}", "x^2-1", True),
    ("\\boxed{Area: 25\\pi}", "25\\pi", True),
    ("\\boxed{Area: 24\\pi}", "25\\pi", False),
    ("\\boxed{Player B: 5}", "Player A: 5", False),
    ("\\boxed{72 \\quad (= 48+24)}", "72", True),
    ("\\boxed{72 = 48 + 24}", "72", True),
    ("\\boxed{72 = 48 + 25}", "72", False),
    ("\\boxed{x \\in \\mathbb{R}, x \\ge 2}", "[2,\\infty)", True),
    ("\\boxed{x \\in \\mathbb{Z}, x \\ge 2}", "[2,\\infty)", False),
    ("\\boxed{x \\ge 2 \\text{ and } x \\in \\mathbb{R}}", "[2,\\infty)", True),
    ("\\boxed{\\text{all } x \\in \\mathbb{R} \\text{ with } x \\ge 2}", "[2,\\infty)", True),
    ("\\boxed{x \\ge 2, x < 5}", "[2,5)", True),
    ("\\boxed{x < -1, x > 5}", "(-\\infty,-1) \\cup (5,\\infty)", True),
    ("\\boxed{x \\ge 2, x \\ge 5}", "[5,\\infty)", False),
    ("\\boxed{2:4:6}", "1:2:3", True),
    ("\\boxed{1:3:2}", "1:2:3", False),
    ("\\boxed{1:2}", "1:2:3", False),
    ("\\boxed{1:2:\\sqrt{3}}", "1:\\sqrt{3}:2", False),
    ("\\boxed{a:b:c = 1:2:3}", "1:2:3", True),
]


@pytest.mark.parametrize(("text", "gold", "right"), NUMBERS)
def test_a_quantity_said_twice_or_counted_in_words_is_one_number(text: str, gold: str, right: bool) -> None:
    assert math(text, gold).ok is right
    assert gsm8k(text, gold).ok is right


@pytest.mark.parametrize(("text", "gold", "right"), MATHEMATICS)
def test_counts_displays_sizes_units_and_sums(text: str, gold: str, right: bool) -> None:
    assert math(text, gold).ok is right
