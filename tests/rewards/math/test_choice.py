"""A letter that is left out, asked or called wrong is not chosen."""

import pytest

from grpo.rewards.math.verifier import math

UNCHOSEN = [
    "<answer>B?</answer>",
    "<answer>Anything except B</answer>",
    "<answer>either B</answer>",
    "<answer>~B</answer>",
    "<answer>B is wrong</answer>",
    "<answer>B is tempting</answer>",
    "Eliminate B.",
    "I would exclude B.",
    "Option B is a trap.",
]
CHOSEN = [
    "<answer>B is correct</answer>",
    "<answer>B: false positives</answer>",
    "A is wrong, C is a trap. The answer is B.",
    "Eliminate A and C. The answer is B.",
    "We exclude A, C and D. Answer: B",
    "A is ruled out. So B.",
    "B, since A is wrong.",
]


@pytest.mark.parametrize("text", UNCHOSEN)
def test_a_letter_that_is_called_wrong_is_not_chosen(text: str) -> None:
    assert math(text, "B").ok is False


@pytest.mark.parametrize("text", CHOSEN)
def test_others_that_are_called_wrong_do_not_matter(text: str) -> None:
    assert math(text, "B").ok is True
