"""Hedges: a text that avoids to name one number is right for no gold and nearer to none than its worst guess."""

import pytest

from grpo.rewards.gsm8k.proximity import proximity
from grpo.rewards.gsm8k.verifier import gsm8k
from grpo.rewards.math.verifier import math
from grpo.rewards.numbers.answers import final_answer
from grpo.rewards.numbers.hedges import doubtful, rivals, stated_from

HEDGES = {
    "near it": ["near 72", "a number near 72", "almost 72", "close to 72", "other than 72", "anything but 72"],
    "a bound": ["less than 72", "at least 72", "up to 72", "The answer exceeds 72."],
    "or something else": ["either 72 or something else", "72 or another number", "Total: 72 or thereabouts"],
    "on a condition": ["72 unless it is 73", "If it is not 71, it is 72.", "72 if not 71", "71, otherwise 72"],
    "by cases": ["71 if it rains, 72 if it does not", "<answer>72 if x else 71</answer>"],
    "a guess": ["72 or so.", "It might be 72.", "Perhaps it is 72.", "I guess 72.", "My guess is 72.", "Probably 72"],
    "a guess behind the mark": [
        "\\boxed{72}, but I am not sure",
        "<answer>72</answer> (just a guess)",
        "\\boxed{72}, maybe.",
    ],
    "taken back behind the mark": [
        "\\boxed{72}. Actually the answer is 73.",
        "<answer>72</answer> No, 73.",
        "#### 72\nWait, that is wrong, it should be 73.",
        "\\boxed{72}. Hmm, no, 73.",
        "Could be \\boxed{73}, could be \\boxed{72}.",
        "The answer is 72. But maybe 73.",
    ],
    "taken back in other words": [
        "<answer>72</answer>\nScratch that.",
        "<answer>72</answer>\nEDIT: it should be 71",
        "\\boxed{72} (this is incorrect)",
        "\\boxed{72} <- wrong",
        "<answer>72</answer>\nIgnore the answer above.",
        "<answer>72</answer>\nP.S. The above is wrong.",
        "<answer>72</answer>\nMy backup answer is 71.",
        "<answer>72</answer>\n71 would be fine as well.",
        "<answer>72</answer>\nI made this number up.",
        "The answer is 72. False!",
        "The answer is 72. That can't be right, so 71.",
    ],
    "taken back in other languages": [
        "<answer>72</answer> Nein, 71.",
        "<answer>72</answer> Non, c'est 71.",
        "<answer>72</answer> No, espera, es 71.",
        "<answer>72</answer> \u4e0d\u5bf9\uff0c\u5e94\u8be5\u662f71\u3002",
        "<answer>72</answer> \u041d\u0435\u0442, 71.",
    ],
    "not asserted": [
        "Suppose the answer is 72.",
        "Let the answer be 72 and see what happens.",
        "I doubt that the answer is 72.",
        "It is false that the answer is 72.",
        "Some claim that the answer is 72.",
        'Nobody would say "72".',
        "The answer can't be 72.",
        "The answer is hardly 72.",
        "The answer is far from 72.",
        "<answer>just under 72</answer>",
    ],
    "denied in other languages": [
        "<answer>nicht 72</answer>",
        "<answer>pas 72</answer>",
        "<answer>\u043d\u0435 72</answer>",
        "<answer>\u00ac72</answer>",
    ],
    "perhaps": ["It might be 71, it might be 72.", "71 but possibly 72", "72, though it could be 71"],
    "once in each sentence": [
        "It is 70. It is 71. It is 72.",
        "The answer is 70. Hmm? The answer is 71. The answer is 72.",
        "Maybe 71. Maybe 72.",
        "Option 1: 71. Option 2: 72.",
        "First guess: 71. Second guess: 72.",
        "1. 70\n2. 71\n3. 72",
        "71\n72",
    ],
    "set equal": ["70 = 71 = 72", "x = 71 = 72", "x=71, x=72"],
    "one by one": ["70, so 71, so 72", "72, no wait, 71", "answers: 70, 71, 72"],
    "two boxes": ["\\boxed{71} or \\boxed{72}", "\\boxed{71}, \\boxed{72}"],
    "in other languages": [
        "Ответ: 71 или 72",
        "La respuesta es 71 o 72.",
        "答案是72或71。",
        "Die Antwort ist 71 oder 72.",
    ],
    "glued": ["72%73", "72..73", "72ish"],
}
STATED = [
    "The answer is not 71 but 72.",
    "<answer>not 71 but 72</answer>",
    "72, not 71.",
    "\\boxed{71}. Actually the answer is 72.",
    "<answer>71</answer> No, 72.",
    "\\boxed{72}. Wait, let me check: 6*12 = 72. Yes.",
    "\\boxed{72}. If you got 70, that is wrong.",
    "\\boxed{72}. Actually, that is an even number.",
    "It is 72 rather than 71.",
    "71? No, 72.",
    "The answer is 71. Wait, no, it is 72.",
    "Thus 72 of the 100 clips were sold.",
    "In May she sold 24. In April she sold 48. So she sold 48 + 24 = 72.",
    "She sold 72 clips in all, since 48 + 24 = 72.",
    "The least value is 72, attained at x = 2.",
    "She has 72 clips left after giving away 28.",
    "If she sells 6 a day, then in 12 days she sells 72.",
    "<answer>72</answer>\nNo further work is needed.",
    "<answer>72</answer>\nThe final answer is 72.",
    "<answer>72</answer>\nAlternatively, 48 * 1.5 = 72.",
    "<answer>72</answer>\n48 is also even.",
    "\\boxed{72}. In case of doubt: 48 + 24 = 72.",
    "Some people think it is 71, but the answer is 72.",
    "Suppose she sold 48 in April. Then in May she sold 24. The answer is 72.",
    "Let x be the total. x = 72.",
    "The answer is 72. No other value works.",
    "The student answers 72 questions.",
    "It's just 72.",
    "The answer is 72!",
    "Hooray! The answer is **72**!",
]


@pytest.mark.parametrize("kind", HEDGES)
def test_a_hedge_is_right_nowhere(kind: str) -> None:
    for text in HEDGES[kind]:
        assert gsm8k(text, "72").ok is False, text
        assert math(text, "72").ok is False, text


@pytest.mark.parametrize("text", STATED)
def test_what_is_corrected_or_explained_is_stated(text: str) -> None:
    assert gsm8k(text, "72").ok is True
    assert math(text, "72").ok is True


@pytest.mark.parametrize("kind", HEDGES)
def test_a_hedge_is_no_nearer_than_its_worst_guess(kind: str) -> None:
    for text in HEDGES[kind]:
        assert proximity(text, "72") <= proximity("71", "72"), text


GUESSES = [
    "about 72",
    "around 72 clips",
    "~72",
    "~ $72",
    "\u2248 72",
    "approximately 72",
    "72 or so",
    "probably 72",
    "I guess 72",
    "72 more or less",
    "72, I think",
    "my best guess is 72",
    "72 (not sure)",
    "say 72",
    "72 or",
    "72-",
    "72 (alternatively 73)",
    "ungef\u00e4hr 72",
    "\u5927\u7ea672",
    "72 vielleicht",
]


@pytest.mark.parametrize("text", GUESSES)
def test_a_marked_answer_that_is_a_guess_is_none(text: str) -> None:
    for form in ("<answer>{}</answer>", "#### {}", "\\boxed{{{}}}"):
        assert gsm8k(form.format(text), "72").ok is False, form


@pytest.mark.parametrize(
    "text",
    [
        "<answer>between 71 and 73, so 72 or so</answer>",
        "<answer>72=</answer>",
        "<answer>72.0.73</answer>",
        "<answer>72 base 8</answer>",
        "<answer>I don't know, 72</answer>",
        "I have no idea. The answer is 72, I don't know.",
        "The answer could be 72.",
        "The answer is 72. Or 73.",
        "The answer is 72. Maybe it is 73.",
    ],
)
def test_who_does_not_know_is_not_paid(text: str) -> None:
    assert gsm8k(text, "72").ok is False


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("<answer>about 3.14</answer>", "3.14"),
        ("\\boxed{\\approx 0.33}", "0.33"),
        ("<answer>about 17%</answer>", "17"),
        ("It takes about 72 minutes.", "72"),
        ("<answer>72 (48 + 24)</answer>", "72"),
    ],
)
def test_what_is_rounded_is_stated(text: str, gold: str) -> None:
    assert gsm8k(text, gold).ok is True


def test_a_decimal_beside_its_fraction_is_the_same_number() -> None:
    found = final_answer("Therefore, the probability is 1/36, or about 2.8%.")
    assert found is not None
    assert [number.text for number in found.numbers] == ["1/36"]
    assert gsm8k("It is 71 or about 72.", "71").ok is False


def test_halves_in_words_belong_to_the_number_before() -> None:
    assert gsm8k("It takes 2 and a half hours.", "2.5").ok is True
    assert gsm8k("It takes 2 and a quarter hours.", "2.5").ok is False


def test_words_around_a_number_decide_only_beside_it() -> None:
    sentence = "72 is more than 60, so it is 72"
    assert not doubtful(sentence, 29, 31)
    assert doubtful("it is more than 72", 16, 18)


def test_sentences_in_the_same_words_are_rivals_until_one_is_taken_back() -> None:
    assert rivals("It is 71. It is 72.") == ["71"]
    assert rivals("It is 71. That is wrong. It is 72.") == []
    assert rivals("Ann has 71. Bob has 72.") == []
    assert rivals("6 * 12 = 72. 72 + 1 = 73.") == []


def test_only_what_follows_a_retraction_counts() -> None:
    assert "72, no wait, 71"[stated_from("72, no wait, 71") :].strip() == ", 71"
    assert stated_from("72, no wait") == 0


def test_hedges_are_read_in_linear_time() -> None:
    for piece in ("maybe ", "71 or ", "It is 7. ", "if not ", "6, at x = ", "\\boxed{1} or "):
        final_answer(piece * 4_000 + "72")
