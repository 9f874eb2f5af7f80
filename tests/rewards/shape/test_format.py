"""The format reward with layouts of the user's own."""

import pytest

from grpo.plugins.errors import OptionError
from grpo.rewards.shape.format import format

GOOD = "<reasoning>\n6*12\n= 72\n</reasoning>\n<answer>\n72\n</answer>\n"


@pytest.mark.parametrize(
    "text", [GOOD, GOOD.strip(), GOOD.replace("\n", "\r\n"), GOOD.replace("\n", ""), "\n\n" + GOOD]
)
def test_line_ends_do_not_matter(text: str) -> None:
    assert format(text) == 1.0


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (GOOD + "and more", 2 / 3),
        ("Sure: " + GOOD, 2 / 3),
        (GOOD.replace("</reasoning>", "</reasoning> thus"), 2 / 3),
        ("<answer>72</answer><reasoning>6*12</reasoning>", 2 / 3),
        ("<reasoning>6*12 <answer>72</answer></reasoning>", 2 / 3),
        (GOOD + "<answer>73</answer>", 1 / 3),
        (GOOD.replace("72\n</answer>", "</answer>"), 1 / 3),
        (GOOD.replace("</answer>", ""), 1 / 3),
        (GOOD.replace("</answer>", "</answer></answer>"), 1 / 3),
        ("</answer>72<answer>", 0.0),
        ("", 0.0),
    ],
)
def test_a_broken_layout_earns_its_share(text: str, score: float) -> None:
    assert format(text) == pytest.approx(score)
    assert format(text, partial=False) == 0.0


@pytest.mark.parametrize(
    "blank",
    [
        " ",
        "\u200b",
        "\u2800",
        "\x00",
        "\u3164",
        "\u00ad\u2060\ufeff",
        "\u2003",
        "\ufe0f",
        "\u0301",
        "\U000e0020",
        "&nbsp;",
        "<!-- 72 -->",
        "~~72~~",
    ],
)
def test_a_block_that_shows_nothing_is_empty(blank: str) -> None:
    assert format(GOOD.replace("72\n</answer>", f"{blank}\n</answer>")) == pytest.approx(1 / 3)
    assert format(f"<think>{blank}</think>72", tags="think") == 0.0


@pytest.mark.parametrize("content", ["0", "-", "\u7b54", "e\u0301", "\u2764\ufe0f", "\u2800.", "$"])
def test_a_block_that_shows_anything_is_good(content: str) -> None:
    assert format(GOOD.replace("72\n</answer>", f"{content}\n</answer>")) == 1.0


def test_any_tags_serve() -> None:
    assert format("<think>6*12</think>\n72", tags="think") == 1.0
    assert format("<think>6*12</think><answer>72</answer>", tags="think/answer") == 1.0
    worked = "<start_working_out>6*12<end_working_out>\n<SOLUTION>72</SOLUTION>"
    assert format(worked, tags="start_working_out:end_working_out/SOLUTION") == 1.0
    assert format("<a>1</a><b>2</b><c>3</c>", tags="a/b/c") == 1.0


@pytest.mark.parametrize("tags", ["", "/", "think/", "<think>", "a b", "a:"])
def test_tags_that_are_no_names_are_refused(tags: str) -> None:
    with pytest.raises(OptionError, match="write names without brackets"):
        format(GOOD, tags=tags)
