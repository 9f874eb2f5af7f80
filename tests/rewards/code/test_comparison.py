"""How outputs compare: never by a prefix, and numbers only where numbers are asked for."""

import pytest

from grpo.rewards.code.output_judge import agrees, difference
from grpo.rewards.code.results import Comparison

SAME = [
    ("exact", b"1\n", b"1\n"),
    ("trimmed", b"1 \n2\n\n\n", b"1\n2"),
    ("trimmed", b"1\r\n2\r\n", b"1\n2\n"),
    ("trimmed", b"", b"\n"),
    ("tokens", b"1   2\n3", b"1\n2 3\n"),
    ("float", b"0.3333333 yes", b"0.33333333333 yes"),
    ("float", b"1e3", b"1000.0"),
    ("float", b"1000000.4", b"1000000"),
    ("float", b".5 -2.", b"0.5 -2"),
    ("float", b"nan", b"nan"),
]
DIFFERENT = [
    ("exact", b"1", b"1\n"),
    ("exact", b"1 \n", b"1\n"),
    ("trimmed", b"1\n", b"1\n2\n"),
    ("trimmed", b"1\n2\n3\n", b"1\n2\n"),
    ("trimmed", b" 1\n", b"1\n"),
    ("trimmed", b"1\n\n2", b"1\n2"),
    ("trimmed", b"", b"1"),
    ("tokens", b"1", b"1 2"),
    ("tokens", b"1 2 3", b"1 2"),
    ("tokens", b"12", b"1 2"),
    ("tokens", b"1.0", b"1"),
    ("float", b"0.33", b"0.33333333"),
    ("float", b"nan", b"1"),
    ("float", b"1", b"nan"),
    ("float", b"inf", b"1e400"),
    ("float", b"1e400", b"2e400"),
    ("float", b"1_0", b"10"),
    ("float", "\u0661".encode(), b"1"),
    ("float", b"0x10", b"16"),
    ("float", b"yes", b"no"),
    ("float", b"1", b"1 1"),
]


@pytest.mark.parametrize(("how", "printed", "expected"), SAME)
def test_equal_outputs_agree(how: Comparison, printed: bytes, expected: bytes) -> None:
    assert agrees(printed, expected, how)


@pytest.mark.parametrize(("how", "printed", "expected"), DIFFERENT)
def test_other_outputs_do_not(how: Comparison, printed: bytes, expected: bytes) -> None:
    assert not agrees(printed, expected, how)


def test_the_tolerance_is_absolute_for_small_and_relative_for_large_numbers() -> None:
    assert agrees(b"0.009", b"0", "float", 0.01)
    assert agrees(b"1009", b"1000", "float", 0.01)
    assert not agrees(b"1011", b"1000", "float", 0.01)


@pytest.mark.parametrize(
    ("printed", "expected", "told"),
    [
        (b"1\n2\n", b"1\n3\n", ": line 2 is '2', expected '3'"),
        (b"1\n", b"1\n3\n", ": line 2 is missing, expected '3'"),
        (b"1\n\n3", b"1\n", ": line 2 is '', expected no line"),
        (b"\xff1", b"1", ": line 1 is '\ufffd1', expected '1'"),
        (b"9" * 99, b"1", f": line 1 is '{'9' * 27}...{'9' * 28}', expected '1'"),
        (b"1 \n", b"1\n", ""),
    ],
)
def test_the_first_other_line_is_told(printed: bytes, expected: bytes, told: str) -> None:
    assert difference(printed, expected) == told
