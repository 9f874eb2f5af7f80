"""The proximity score: bounded, continuous, monotone, and blind to spelling."""

import itertools
import random

import pytest

from grpo.rewards.gsm8k.proximity import proximity

FORMS = [
    "{}",
    "The answer is {}.",
    "So she has {} in all.",
    "#### {}",
    "<answer>{}</answer>",
    "<reasoning>\nFirst 3.\nThen 4.\n</reasoning>\n<answer>\n{}\n</answer>\n",
    "<reasoning>\r\nFirst 3.\r\n</reasoning>\r\n<answer>\r\n{}\r\n</answer>",
    "<start_working_out>3<end_working_out><SOLUTION>{}</SOLUTION>",
    "\\boxed{{{}}}",
    "<think>3 and 4</think>\n<answer>{}</answer>",
]
GOLDS = ["72", "5", "1", "0", "-3", "1,080", "0.5", "3/4", "-0.001", "109,200,000", "1e6", "1e-9", "33.3", "7%"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gold", GOLDS)
def test_the_gold_scores_one_in_every_form(form: str, gold: str) -> None:
    assert proximity(form.format(gold), gold) == 1.0
    assert proximity(form.format(gold), f"So it is.\n#### {gold}") == 1.0


@pytest.mark.parametrize("spelling", ["1200", "1,200", "1200.0", "$1200", "$1,200.00", "1.2e3", "1.2 x 10^3", "2400/2"])
@pytest.mark.parametrize("form", FORMS)
def test_equivalent_spellings_score_alike(form: str, spelling: str) -> None:
    assert proximity(form.format(spelling), "1200") == 1.0
    assert proximity(form.format("1200"), f"#### {spelling}") == 1.0


@pytest.mark.parametrize("gold", [72, 5, 1, 0, -3, 1080, 0.5, -0.25, 109_200_000])
@pytest.mark.parametrize("form", FORMS[3:])
def test_the_score_falls_with_the_distance_on_both_sides(form: str, gold: float) -> None:
    steps = [0, 1e-6, 0.001, 0.25, 0.5, 1, 2, 3, 10, 50, 1e3, 1e6, 1e12, 1e30]
    for side in (1, -1):
        scores = [proximity(form.format(f"{gold + side * step:.9f}"), str(gold)) for step in steps]
        assert scores[0] == 1.0
        assert all(nearer > farther for nearer, farther in itertools.pairwise(scores)), scores
        assert scores[-1] > proximity(form.format("?"), str(gold)) == 0.0


def test_a_small_change_of_the_answer_is_a_small_change_of_the_score() -> None:
    for gold in (0, 5, 72, -3, 1080):
        for guess in (gold, gold + 1, gold - 10):
            here, beside = (
                proximity(f"<answer>{guess}</answer>", str(gold)),
                proximity(f"<answer>{guess}.0001</answer>", str(gold)),
            )
            assert abs(here - beside) < 0.001


def test_no_wrong_answer_reaches_any_form_of_the_gold() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        gold = rng.choice([rng.randint(-20, 20), rng.randint(0, 10**6), round(rng.uniform(-5, 5), 2)])
        guess = gold + rng.choice([-1, 1]) * rng.choice([0.01, 1, 2, 10, gold or 3])
        wrong = proximity(rng.choice(FORMS[3:]).format(guess), str(gold))
        assert wrong < proximity(rng.choice(FORMS[3:]).format(gold), str(gold)) == 1.0
        assert wrong >= 0.1


def test_one_off_on_small_whole_numbers_is_far_below_right() -> None:
    for gold in range(-20, 101):
        assert proximity(f"<answer>{gold + 1}</answer>", str(gold)) == pytest.approx(0.4)


def test_hedging_is_as_good_as_its_worst_guess() -> None:
    assert proximity("<answer>71 or 72</answer>", "72") == proximity("<answer>71</answer>", "72")
    assert proximity("<answer>1, 2, 72</answer>", "72") == proximity("<answer>1</answer>", "72")


def test_a_number_in_words_is_a_number_where_nothing_else_is_said() -> None:
    assert proximity("Seventy-two", "72") == proximity("<answer>seventy-two</answer>", "72") == 1.0
    assert proximity("She sold seventy-two clips to her friends.", "72") == 0.0


@pytest.mark.parametrize(
    "text", ["", "I do not know.", "<answer></answer>", "<answer>?</answer>", "one of them", "nan"]
)
def test_no_number_scores_zero(text: str) -> None:
    assert proximity(text, "72") == 0.0


@pytest.mark.parametrize("gold", ["", "x+1", "Paris", "#### "])
def test_a_row_whose_gold_is_no_number_abstains(gold: str) -> None:
    assert proximity("<answer>72</answer>", gold) is None


def test_the_published_tables_never_abstain() -> None:
    for table in ("gemma3_1b", "adv_llama3", "qwen3_4b"):
        assert isinstance(proximity("72", "Paris", table=table), float)


def test_table_golds_come_bare_or_at_the_end_of_a_worked_answer() -> None:
    text = "<start_working_out>6*12<end_working_out><SOLUTION>72</SOLUTION>"
    assert proximity(text, "72", table="gemma3_1b") == proximity(text, "6*12\n#### 72", table="gemma3_1b") == 3.0


def test_the_end_token_is_an_option_of_the_third_table() -> None:
    text = "<end_working_out><SOLUTION>72</SOLUTION><|im_end|>"
    assert proximity(text, "72", table="qwen3_4b") == -2.0
    assert proximity(text, "72", table="qwen3_4b", eos="<|im_end|>") == 5.0
