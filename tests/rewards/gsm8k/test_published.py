"""What the corrected demo rewards do where the published ones have a quirk."""

import pytest

from grpo.rewards.gsm8k.published import correctness, integer, soft_format, strict_format, xmlcount

GOOD = "<reasoning>\n6*12\nmakes 72\n</reasoning>\n<answer>\n72\n</answer>\n"
RELAID = [
    GOOD,
    GOOD.strip(),
    GOOD + "\n\n",
    "\n" + GOOD,
    GOOD.replace("\n", "\r\n"),
    GOOD.replace("6*12", "one step\n" * 200),
]


@pytest.mark.parametrize("text", RELAID)
def test_line_ends_and_long_reasoning_change_no_corrected_score(text: str) -> None:
    assert correctness(text, "#### 72") == 2.0
    assert [reward(text) for reward in (integer, strict_format, soft_format, xmlcount)] == [0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("answer", ["72.0", "$72", "+72", "72.", "072", "72 clips", "\\boxed{72}"])
def test_corrected_correctness_compares_numbers(answer: str) -> None:
    assert correctness(f"<answer>{answer}</answer>", "72") == 2.0
    assert correctness(f"<answer>{answer}</answer>", "72", variant="gist") == 0.0


def test_comma_golds_are_right_with_and_without_the_comma() -> None:
    for text in ("<answer>1080</answer>", "<answer>1,080</answer>"):
        assert correctness(text, "so\n#### 1,080") == 2.0
    assert correctness("<answer>1,080</answer>", "so\n#### 1,080", variant="unsloth_copy") == 2.0
    assert correctness("<answer>1,080</answer>", "so\n#### 1,080", variant="gist") == 0.0
    assert correctness("<answer>1080</answer>", "so\n#### 1,080", variant="gist") == 2.0


@pytest.mark.parametrize(
    ("answer", "score"), [("-72", 0.5), ("1,080", 0.5), ("72.0", 0.5), ("72.5", 0.0), ("72%", 0.0)]
)
def test_corrected_integer_reads_whole_numbers(answer: str, score: float) -> None:
    assert integer(f"<answer>\n{answer}\n</answer>") == score


@pytest.mark.parametrize("text", ["", "<answer></answer>", "seventy", "\u00b2", "72 clips", "71 72"])
def test_corrected_integer_wants_one_number_alone(text: str) -> None:
    assert integer(text) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        GOOD + GOOD,
        GOOD.replace("6*12\nmakes 72", " "),
        GOOD.replace("72\n</answer>", "\n</answer>"),
        GOOD.replace("<answer>", "<answer><answer>"),
        "Sure. " + GOOD,
    ],
)
def test_corrected_formats_want_each_tag_once_around_something(text: str) -> None:
    assert strict_format(text) == 0.0
    assert soft_format(text) == 0.0


def test_xmlcount_charges_trailing_text_once_and_stays_above_zero() -> None:
    assert xmlcount(GOOD + "And so on.") == pytest.approx(0.5 - 0.01)
    assert xmlcount(GOOD + "x" * 10_000) == 0.0
    assert xmlcount(GOOD + "x" * 10_000, variant="gist") < -19
