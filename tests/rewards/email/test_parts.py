"""Each part of the e-mail reward pays for its own thing, in the forms that people use, and for nothing else."""

from typing import Any

import pytest

from grpo.plugins.errors import OptionError
from grpo.rewards.email.parts import exact, keywords, length, recipient, signature

SIGNED = "Hi Anna,\n\nFriday suits me.\n\nBest,\nTom\n{}"


@pytest.mark.parametrize(
    ("text", "wanted", "score"),
    [
        ("The refund was sent.", ["refund"], 1.0),
        ("We refunded it.", ["refund"], 0.0),
        ("We will see you\non FRIDAY at 9:00.", ["friday at 9:00"], 1.0),
        ("Rückgabe ist möglich.", ["RÜCKGABE", "Umtausch"], 0.5),
        ("Quote C++ (v2).", ["C++", "(v2)"], 1.0),
        ("refund refund refund", ["refund", "Refund ", "apology"], 0.5),
        ("<think>refund, apology</think>Hello.", ["refund", "apology"], 0.0),
        ("Don\u2019t miss the follow\u2011up.", ["don't", "follow-up"], 1.0),
        ("a, b", "a, b, c", 2 / 3),
        ("a, b", "a, b; c", 0.5),
    ],
)
def test_keywords_are_whole_words_in_any_case(text: str, wanted: object, score: float) -> None:
    assert keywords(text, wanted) == pytest.approx(score)


@pytest.mark.parametrize("wanted", [None, "", [], ["", " "], 7, {"a": 1}])
def test_without_keywords_the_reward_abstains(wanted: object) -> None:
    assert keywords("refund", wanted) is None


def test_the_exact_match_is_of_words_and_not_of_layout() -> None:
    assert exact("Subject: x\n\nHi Tom,\n\tFriday.", "Hi Tom,\n\nFriday.") == 1.0
    assert exact("Hi Tom,\n\nFriday", "Hi Tom,\n\nFriday.") == 0.0
    assert exact("Hi Tom,", None) is None


def test_the_length_falls_from_the_limit_on() -> None:
    assert [length("word " * n, limit=10, slack=4) for n in (1, 10, 11, 12, 14, 99)] == [0.0, 0.0, -0.25, -0.5, -1, -1]
    assert [length("word " * n, limit=10) for n in (10, 11)] == [0.0, -1.0]


@pytest.mark.parametrize("options", [{"limit": 0}, {"slack": -1}])
def test_a_length_that_means_nothing_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(OptionError, match=r"email\.length"):
        length("word", **options)


@pytest.mark.parametrize(
    ("greeting", "score"),
    [
        ("Dear Anna,", 1.0),
        ("Dear Ms. van der Berg:", 1.0),
        ("Good morning, Anna", 1.0),
        ("Hello, Anna,", 1.0),
        ("Hi there, Anna!", 1.0),
        ("My dear Anna,", 1.0),
        ("Capt. van der Berg,", 1.0),
        ("Dear Anna, dear Tom,", 0.0),
        ("Hello, Tom,", 0.0),
        ("Good morning Anna!", 1.0),
        ("ANNA VAN DER BERG,", 1.0),
        ("Dear A. Berg,", 1.0),
        ("Hi Anna and team,", 1.0),
        ("Hi Anna or Bob or Carl,", 0.0),
        ("Dear Annabel,", 0.0),
        ("Dear van der,", 0.0),
        ("Dear Sir or Madam,", 0.0),
        ("Dear \u0410nna,", 0.0),
        ("Dear [Name],", 0.0),
    ],
)
def test_the_greeting_names_the_recipient_and_nobody_else(greeting: str, score: float) -> None:
    assert recipient(f"{greeting}\n\nThe bike of Anna is ready.", "Dr Anna van der Berg") == score


@pytest.mark.parametrize(
    ("greeting", "name"),
    [
        ("Dear Jose,", "José García"),
        ("Dear Jose\u0301,", "José García"),
        ("Dear Ms. Mueller,", "Anna Müller"),
        ("Dear Ms. Muller,", "Anna Müller"),
        ("Dear Soren,", "Søren Berg"),
        ("Dear Lukasz,", "Łukasz Nowak"),
        ("Dear Nguyen,", "Nguyễn Văn An"),
        ("Dear Jean Luc,", "Jean-Luc Picard"),
        ("Dear Captain Picard,", "Jean-Luc Picard"),
        ("Dear Mrs Smith,", "Anna Smith-Jones"),
        ("Hi Ann\u2011Marie,", "Ann-Marie Smith"),
        ("Dear María José Carreño Quiñones,", "María José Carreño Quiñones"),
        ("Ch\u00e8re Anna,", "Anna Meyer"),
        ("Sehr geehrte Frau Meyer,", "Anna Meyer"),
        (
            "\u0423\u0432\u0430\u0436\u0430\u0435\u043c\u044b\u0439 \u0418\u0432\u0430\u043d,",
            "\u0418\u0432\u0430\u043d \u041f\u0435\u0442\u0440\u043e\u0432",
        ),
        ("Dear Dr. Anna Meyer, PhD,", "Anna Meyer"),
        ("Dear Cara,", "Cara Smith"),
        ("Dear Don,", "Don Johnson"),
        ("Dear Al,", "Al Gore"),
        ("Hi Judge,", "Mike Judge"),
    ],
)
def test_a_name_may_be_written_the_way_people_write_it(greeting: str, name: str) -> None:
    assert recipient(f"{greeting}\n\nYour bike is ready.", name) == 1.0
    assert recipient(f"{greeting}\n\nYour bike is ready.", "Peter Olsen") == 0.0


@pytest.mark.parametrize("name", [None, "", " ", "Dr."])
def test_without_a_name_the_reward_abstains(name: object) -> None:
    assert recipient("Dear Anna,", name) is None


@pytest.mark.parametrize(
    ("lines", "expected", "score"),
    [
        ("0113 496 0123", {}, 1 / 3),
        ("0113 496 0123\ntom@x.example\n12 Mill Lane", {}, 1.0),
        ("+44 113 496 0123", {"phone": "0113 496 0123"}, 1 / 3),
        ("0113 496 0124", {"phone": "0113 496 0123"}, 0.0),
        ("496 0123", {"phone": 441134960123}, 1 / 3),
        ("60123", {"phone": "0113 496 0123"}, 0.0),
        ("0113 496 0123", {"phone": "60123"}, 0.0),
        ("Tom@X.example", {"email": "tom@x.example"}, 1 / 3),
        ("12 Mill Lane\nLeeds LS1 4AP", {"address": "12 Mill Lane, Leeds"}, 1 / 3),
        ("13 Mill Lane\nLeeds", {"address": "12 Mill Lane, Leeds"}, 0.0),
    ],
)
def test_the_signature_holds_what_the_row_names(lines: str, expected: dict[str, Any], score: float) -> None:
    assert signature(SIGNED.format(lines), **expected) == pytest.approx(score)
