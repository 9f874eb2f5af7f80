"""An e-mail is taken apart the way people read it."""

import pytest

from grpo.rewards.email.letter import read_letter


@pytest.mark.parametrize(
    ("completion", "greeting"),
    [
        ("Dear Anna,\nthank you.", "Dear Anna"),
        ("Subject: Refund\nTo: anna@x.example\n\nHi Anna - thank you.", "Hi Anna"),
        ("**Subject:** Refund\n\nDear Dr. Meyer:\n\nThank you.", "Dear Dr Meyer"),
        ("<think>Dear Tom, no, Dear Anna</think>\n\nDear Anna\n\nThank you.", "Dear Anna"),
        ("<reasoning>Hm.</reasoning>\n<answer>\nHello Anna!\n</answer>", "Hello Anna"),
        ("Hello, Anna, thank you.", "Hello, Anna"),
        ("Hi there! Thank you.", "Hi there! Thank you"),
        ("Liebe Anna, lieber Tom, danke.", "Liebe Anna, lieber Tom"),
        ("Thank you for writing", "Thank you for writing"),
        ("", ""),
    ],
)
def test_the_greeting_is_the_first_line_up_to_its_punctuation(completion: str, greeting: str) -> None:
    assert read_letter(completion).greeting == greeting


@pytest.mark.parametrize(
    ("completion", "signature"),
    [
        ("Dear Anna,\n\nThanks.\n\nKind regards,\nTom\n\n0113 496 0123", ("Tom", "0113 496 0123")),
        ("Dear Anna,\n\nThanks.\n\nBest,\r\nTom\r\n", ("Tom",)),
        ("Dear Anna,\n\nThanks.\n--\nTom\nLeeds", ("Tom", "Leeds")),
        ("Dear Anna,\n\nThanks.\n\nThanks, Tom\nLeeds", ("Leeds",)),
        ("Dear Anna,\n\nThanks.\n\nTom\nLeeds", ("Tom", "Leeds")),
        ("Dear Anna, thanks.\nTom", ()),
        ("Best,\nTom\n\nKind regards\nAnna", ("Anna",)),
        ("Hi Anna,\n\nIt works.\n\n**Best regards,**\nTom\n\nLeeds", ("Tom", "Leeds")),
        ("Hi Anna,\n\nIt works.\n\nThanks & regards,\nTom\n\nLeeds", ("Tom", "Leeds")),
        ("Hi Anna,\n\nIt works.\n\nUntil Friday,\nTom\n\nLeeds", ("Tom", "Leeds")),
        ("Hi Anna,\n\nIt works.\n\n---\nTom\n\nLeeds", ("Tom", "Leeds")),
        ("Hi Anna,\n\nBest,\nTom\n\n---\nA draft.", ("Tom", "---", "A draft.")),
        ("Hi Anna,\n\nIt works.\n\nTom\n12 Mill Lane,\nLeeds", ("Tom", "12 Mill Lane,", "Leeds")),
        ("Hallo Anna,\n\ndanke.\n\nMit freundlichen Grüßen\nTom", ("Tom",)),
        ("", ()),
    ],
)
def test_the_signature_follows_the_sign_off_or_is_the_last_of_several_paragraphs(
    completion: str, signature: tuple[str, ...]
) -> None:
    assert read_letter(completion).signature == signature


def test_a_sentence_that_starts_like_a_sign_off_is_none() -> None:
    letter = read_letter("Dear Anna,\n\nBest wishes for the new year and thank you for your order.\n\nTom")
    assert letter.signature == ("Tom",)


def test_a_signature_ends_after_twelve_lines() -> None:
    assert len(read_letter("Hi\n--\n" + "line\n" * 40).signature) == 12
