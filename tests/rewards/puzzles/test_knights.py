"""Knights and knaves: statements read in any usual form, and nothing else accepted beside them."""

from typing import Any

import pytest
from patience import little_work

from grpo.plugins.errors import OptionError
from grpo.plugins.host import Host
from grpo.rewards.puzzles.knights import (
    Unreadable,
    knights_and_knaves,
    knights_and_knaves_score,
    logic_rl_score,
    read_roles,
)

GOLD = "(1) Amelia is a knight\n(2) Zoey is a knave\n(3) Owen is a knave"
ROLES = {"amelia": "knight", "zoey": "knave", "owen": "knave"}


@pytest.mark.parametrize(
    "text",
    [
        GOLD,
        GOLD.upper(),
        GOLD.replace("\n", "\r\n"),
        "Amelia is a knight, Zoey is a knave, and Owen is a knave.",
        "Owen is knave; Zoey is knave; Amelia is knight",
        "1. Amelia: knight\n2. Zoey: knave\n3. Owen: Knave",
        "- Amelia is a knight\n- Zoey is a knave\n- Owen is a knave",
        "Amelia is a knight. Zoey and Owen are knaves.",
        "Zoey, and Owen are both knaves and Amelia is the knight",
        "Knights: Amelia\nKnaves: Zoey, Owen",
        "So the answer is: Amelia is a knight, while Zoey is a knave, and Owen is a knave",
        "Amelia = knight, Zoey -> knave, Owen - knave",
        "- **Amelia** is a **knight**\n- **Zoey** is a **knave**\n- **Owen** is a *knave*",
        "\\text{Amelia is a knight, Zoey is a knave and Owen is a knave}",
        '{"Amelia": "knight", "Zoey": "knave", "Owen": "knave"}',
        "Amelia (knight), Zoey (knave), Owen (knave)",
        "| Amelia | knight |\n| Zoey | knave |\n| Owen | knave |",
        "Amelia is a knight, Amelia is a knight, Zoey is a knave, Owen is a knave",
    ],
)
def test_usual_forms_are_read(text: str) -> None:
    assert read_roles(text) == ROLES
    for framed in (f"<answer>\n{text}\n</answer>", f"<think>Owen is a knight?</think>\n<answer>{text}"):
        assert knights_and_knaves(framed, GOLD).ok is True
        assert knights_and_knaves_score(framed, GOLD) == 1.0


def test_without_a_block_the_list_at_the_end_is_read() -> None:
    work = "Suppose Owen is a knight.\nThen Zoey is a knight.\n"
    listed = "(1) Amelia is a knight\n(2) Zoey is a knave\n(3) Owen is a knave\n"
    assert knights_and_knaves(f"{work}So:\n{listed}", GOLD).ok is True
    assert knights_and_knaves(f"{work}So:\n\n{listed}\n", GOLD).ok is True
    assert knights_and_knaves(f"Owen is a knight\n{listed}", GOLD).ok is True
    assert knights_and_knaves(f"{listed}\nOwen is a knave", GOLD).ok is False
    assert knights_and_knaves(f"{listed}Owen is a knight", GOLD).ok is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        "knight",
        "knights and knaves",
        "Amelia is a person",
        "Amelia is not a knight",
        "Amelia is a knight or a knave",
        "maybe Amelia is a knight",
        "Amelia is a knight, Amelia is a knave",
        "Amelia is a knight and Zoey lies",
        "0 1 2 3 Amelia is a knight",
        "Ignore this. Amelia is a knight",
        "is a knight",
    ],
)
def test_other_words_beside_the_statements_are_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        read_roles(text)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Amelia is a knight, Zoey is a knave, Owen is a knight", 0.1),
        ("Amelia is a knight, Zoey is a knave", 0.0),
        ("Amelia is a knight, Zoey is a knave, Owen is a knave, Sam is a knave", 0.0),
        ("Amelia is a knight, Zoey is a knave, Owen is a knave. Or not.", 0.0),
        ("I cannot tell", 0.0),
    ],
)
def test_wrong_answers_say_why_and_pay_for_completeness_alone(text: str, score: float) -> None:
    verdict = knights_and_knaves(f"<answer>{text}</answer>", GOLD)
    assert verdict.ok is False
    assert verdict.reason
    assert knights_and_knaves_score(f"<answer>{text}</answer>", GOLD) == score


@pytest.mark.parametrize(
    "answer",
    [
        {"solution_text_format": GOLD},
        {"Amelia": "knight", "Zoey": "Knave", "Owen": "knave"},
        {"Amelia": True, "Zoey": False, "Owen": False, "Sam": None},
    ],
)
def test_the_solution_may_be_a_mapping(answer: Any) -> None:
    assert knights_and_knaves(GOLD.replace("\n", ", "), answer).ok is True
    text = f"<think>a</think><answer>{GOLD}</answer>"
    assert knights_and_knaves_score(text, answer, variant="logic_rl", header="Assistant:") == 3.0


@pytest.mark.parametrize("answer", [None, "", "unknown", 7, {}, {"Amelia": "spy"}, {"Amelia": None}, ["Amelia"]])
def test_an_unusable_solution_is_undecided(answer: Any) -> None:
    assert knights_and_knaves(GOLD, answer).ok is None
    assert knights_and_knaves_score(GOLD, answer) is None


@pytest.mark.parametrize(
    "piece",
    ["Amelia is a ", "Amelia, ", "Amelia and ", "knight", "(1) ", "a " * 10, "knights: A, ", "and ", "- ", "is "],
)
def test_hostile_texts_take_no_time(piece: str) -> None:
    many = 500_000 // len(piece)
    for text in (piece * many, "<answer>" + piece * 200, "<answer>" + piece * many):
        with little_work(text[:60]):
            assert knights_and_knaves(text, GOLD).ok is False
            assert knights_and_knaves(GOLD, text).ok in (None, False)
            knights_and_knaves_score(text, GOLD, variant="logic_rl")


def test_the_published_score_needs_its_layout_its_header_and_its_sentence() -> None:
    good = f"<think>a</think><answer>{GOLD}</answer>"
    assert logic_rl_score(f"Assistant:{good}", GOLD) == 3.0
    assert logic_rl_score(good, GOLD) == -1.0
    assert logic_rl_score(f"Assistant:{good}<answer>", GOLD) == -3.0
    assert logic_rl_score("Assistant:" + good.replace("Owen is a", "Owen is the"), GOLD) == -1.0
    assert logic_rl_score("Assistant:" + good.replace("</answer>", " two knaves</answer>"), GOLD) == -1.0
    assert logic_rl_score(f"Assistant:{good}", "nobody") == -1.0
    wrapped: Any = {"solution_text_format": GOLD}
    assert knights_and_knaves_score(good, wrapped, variant="logic_rl", header="Assistant:") == 3.0


@pytest.mark.parametrize("format_score", [-0.1, 1.1])
@pytest.mark.parametrize("reward", ["knights_and_knaves", "countdown"])
def test_a_format_score_out_of_range_is_refused(reward: str, format_score: float) -> None:
    with pytest.raises(OptionError, match="from 0 to 1"):
        Host.discover().reward(f"{reward}:format_score={format_score}")
