"""What is printed has no commands for a terminal, whatever a policy writes, and is made so in linear time."""

from __future__ import annotations

import pytest
from patience import little_work

from grpo.core.text.printable import encodable, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", "ab"),
        ("a\x1b]0;title\x07b\x9d8;;x\x9cc", "abc"),
        ("a\x90q\x1b\\b", "ab"),
        ("a\x90never ended", "anever ended"),
        ("a\x90one\x90two\x9cb", "aoneb"),
        ("a\u202eb\ud800c\x00d", "abcd"),
        ("a\r\nb\rc\td", "a\nb\nc\td"),
    ],
)
def test_no_command_is_left_and_the_text_stays(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("start", ["\x90", "\x9d", "\x1b]", "\x1b[", "\x9b", "\x1b", "\x90a", "\x1b[0;", "\x1b "])
def test_many_starts_without_an_end_take_no_longer_than_their_length(start: str) -> None:
    with little_work(start):
        printable(start * 500_000)  # read to the end from each of them, it takes many minutes


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert encodable("a\ud800b\U0001f600") == "a?b\U0001f600"
