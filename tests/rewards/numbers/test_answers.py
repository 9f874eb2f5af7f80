"""Where the final answer of a completion stands."""

from typing import Any

import pytest

from grpo.rewards.numbers.answers import final_answer, gold_number, is_right
from grpo.rewards.numbers.numerals import read_number

GOLD = gold_number("72")


@pytest.mark.parametrize(
    "text",
    [
        "#### 72",
        "####72",
        "6*12 = 72\n#### $72.00",
        "#### 72 clips",
        "### Work\n6*12\n#### Final answer\n72",
        "<answer>72</answer>",
        "<answer>\n72\n</answer>\n",
        "<answer>\r\n72\r\n</answer>",
        "<ANSWER> 72 clips </ANSWER>",
        "<answer>72",
        "<answer>The total is 6 * 12 = 72.</answer>",
        "<answer>\\boxed{72}</answer>",
        "<answer>70</answer> no: <answer>72</answer>",
        "<answer>72</answer><answer></answer>",
        "<reasoning>6*12\n#### 70</reasoning>\n<answer>72</answer><|im_end|>",
        "<start_working_out>6*12<end_working_out><SOLUTION>72</SOLUTION>",
        "So \\boxed{72}. I hope it is right.",
        "\\boxed{72\\text{ clips}}",
        "\\boxed{72^\\circ}",
        "\\boxed{72^{\\circ}}",
        "\\boxed{x = 72}",
        "<think>Is it \\boxed{70}?</think>\nThe answer is 72.",
        "<think>6*12 = 72</think>\n<answer>",
        "The answer is 72.",
        "The final answer is: **72 clips**, 6 for each of the 12.",
        "Answer: 6 * 12 = 72",
        "Answer: 72 (48 + 24)",
        "6*12 is 70.\nA: 72",
        "She sold 48 clips and then 24, so 72 clips in all.",
        "48 + 24 = 72 clips in 2 months",
        "72 is the answer",
        "Seventy-two.",
        "In all it is __72__.",
        "<answer>**72** (**72**)</answer>",
        "#### 72, 72",
        "The answer is 72 / 1.",
        "She sold <<48+24=72>>72",
        "72",
        "She sold 72 clips (48 in April and 24 in May).",
        "The answer is 72, not 71.",
        "It is not 71 but 72.",
        "Is it 71? No: 72.",
        "\u7b54\u6848\u662f72\u3002",
        "<answer>71 is wrong, 72 is right</answer>",
        "71 clips is too low, so it is 72.",
        "<answer>71 (wrong), 72</answer>",
        "The answer 71 isn't right. The answer is 72.",
        "The wrong answer is 71, the right answer is 72.",
        "\u56e0\u6b64\u4e00\u5171\u670972\u9897\u7cd6\u679c\u3002",
    ],
)
def test_the_final_answer_is_found(text: str) -> None:
    assert is_right(final_answer(text), GOLD)


@pytest.mark.parametrize(
    "text",
    [
        "<answer>71</answer>",
        "72 <answer>71</answer>",
        "<answer>72</answer> but then <answer>71</answer>",
        "<answer>unknown</answer> though 72",
        "<answer>71 or 72</answer>",
        "<answer>70, 71, 72</answer>",
        "<answer>71\n72</answer>",
        "<answer>72 != 71</answer>",
        "<answer>6*12</answer>",
        "<answer>72*72</answer>",
        "#### 72 - 72",
        "\\boxed{72 \\times 72}",
        "\\boxed{72 \\cdot 5}",
        "<answer>72 plus 5</answer>",
        "<answer>72 x 72</answer>",
        "<answer>72 divided by 72</answer>",
        "The answer is (72) + (72).",
        "The answer is 71 or 72",
        "\\boxed{72^2}",
        "<think>72</think>\nThe answer is 71.",
        "#### 71",
        "not 72",
        "<answer>72 is wrong, 71 is right</answer>",
        "<answer>72 is wrong</answer>",
        "<answer>72 isn't the answer</answer>",
        "72 clips is too high.",
        "The wrong answer is 72.",
        "<answer>72 was incorrect, so 71</answer>",
        "The answer is not 72.",
        "It isn't 72",
        "48 + 24 = 72. The answer is not 72.",
        "#### not 72",
        "<answer>not 72</answer>",
        "<answer>72 (or 73)</answer>",
        "<answer>72?</answer>",
        "Is it 72?",
        "#### > 72",
        "x=71, x=72",
        "x=72, x=71",
        "x = 71 or x = 72",
        "<answer>a=71, b=72</answer>",
        "71 \\pm 1",
        "\\boxed{71 \\pm 1}",
        "<answer>72 \u00b1 0.5</answer>",
        "The answer is \u00b172.",
        "<answer>+/- 72</answer>",
        "71 \\neq 72",
        "72 \\neq 71",
        "\\boxed{71 \\ne 72}",
        "<answer>71 < 72</answer>",
        "71 \\le 72",
        "The answer is less than 72.",
        "The answer is at most 72.",
        "The answer is twice 72.",
        "The answer is the square of 72.",
        "72 <answer></answer>",
        "<think>72</think><answer></answer>",
        "<reasoning>\n72\n</reasoning>\n<answer>\n</answer>",
        "So 72. \\boxed{}",
        "<think>72</think>I cannot tell.",
        "<answer>\u2265 72</answer>",
        "\\boxed{\\le 72}",
    ],
)
def test_what_is_not_the_final_answer_does_not_count(text: str) -> None:
    assert not is_right(final_answer(text), GOLD)


@pytest.mark.parametrize(
    "text",
    [
        "3*60=180 minutes a day, for a total of 540 minutes.",
        "He reads 3*60=180 pages a week, giving him a total of 540.",
        "It costs 3*180 = $540, a total of $540.",
        "She runs 3*60=180 m each time, which makes 540 m.",
        "3*60=180, so she runs 540 meters.",
        "The first had 180, the second 360 = 2*180, totaling 540.",
        "I write \\boxed{} around it: the answer is 540.",
        "The answer is 540.<|im_end|>",
        "<think>540</think><|im_end|>",
        "x = 540",
        "x = 500 + 40 = 540",
        "She has $1080 - $540 = $540 left.",
        "$1080 - $540 = $540",
        "500g + 40g = 540g",
        "The bag weighs 500 g + 40 g = 540 g.",
        "600 m - 60 m = 540 m",
        "It takes 540 min. (9 h 0 min)",
    ],
)
def test_the_total_is_the_answer_and_not_what_it_was_made_of(text: str) -> None:
    assert is_right(final_answer(text), read_number("540"))


@pytest.mark.parametrize(
    "text",
    [
        "The total cost is **$20** for the 5 tickets.",
        "The total cost is **20 dollars** for 5 tickets.",
        "The total cost is $20 for the 5 tickets.",
        "She pays __$20__ for the 5 tickets.",
        "She pays <b>$20</b> for the 5 tickets.",
        "She pays \\textbf{20} dollars for the 5 tickets.",
        "She pays $\\boxed{20}$ for the 5 tickets.",
        "She pays \\fbox{20} dollars for the 5 tickets.",
        "She pays \\framebox{20} dollars for the 5 tickets.",
        "Total: **$20** (5 tickets at $4)",
        "The total is **$20**. That is $4 for each of the 5 tickets.",
        "So she pays **$20**.\n\nEach of the 5 tickets is good for 2 rides.",
        "**5** tickets cost 5 * 4 = $20.",
        "**5 tickets** cost $20.",
        "The 5 tickets cost **$4** each. So she pays $20.",
        "She pays **$4**. Wait, no, she pays $20.",
        "The answer is **$20** for 5 tickets.",
        "<answer>She pays **$20** for 5 tickets.</answer>",
    ],
)
def test_a_conclusion_in_bold_or_in_a_box_is_the_answer(text: str) -> None:
    assert is_right(final_answer(text), read_number("20"))
    assert not is_right(final_answer(text), read_number("5"))


@pytest.mark.parametrize(
    "text", ["It is **20** or **21**.", "**20** or 21", "It is not **20**.", "Is it **20**?", "**20** - 1"]
)
def test_bold_makes_no_answer_of_a_hedge(text: str) -> None:
    assert not is_right(final_answer(text), read_number("20"))


@pytest.mark.parametrize("text", ["", "\n", "I cannot tell.", "<reasoning></reasoning>", "<answer></answer>"])
def test_silence_has_no_answer(text: str) -> None:
    assert final_answer(text) is None


@pytest.mark.parametrize(
    "answer",
    [
        "72",
        " 72\n",
        "72.0",
        "$72",
        "72 clips",
        72,
        72.0,
        "6*12 = 72\n#### 72",
        "#### $72",
        "\\boxed{72}",
        "<answer>72</answer>",
    ],
)
def test_golds_are_read_in_every_form(answer: float | str) -> None:
    assert gold_number(answer).value == 72


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "x+1",
        "Paris",
        "2x",
        "71 or 72",
        "#### ",
        "#### x",
        "nan",
        "1e999999999",
        None,
        True,
        [72],
        float("inf"),
    ],
)
def test_unusable_golds_are_none(answer: Any) -> None:
    assert gold_number(answer) is None


def test_a_gold_of_more_digits_than_python_writes_is_unusable() -> None:
    assert gold_number(10**5000) is None
