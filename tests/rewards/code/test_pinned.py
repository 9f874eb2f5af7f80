"""Which assertions ask for one value whatever else was asked, and which a changing answer could pass unmeant."""

import ast

import pytest

from grpo.rewards.code.assert_pinned import Pinned


def pinned(source: str) -> bool:
    body = ast.parse(source).body
    return Pinned(body, {"f", "C"})(body[-1])


@pytest.mark.parametrize(
    "source",
    [
        "assert f(3) == 6",
        "assert [1, 2] == f(3)",
        "assert f(1) == 1 and f(1) == 2",
        "a = f(3)\nassert a == 6",
        "assert f(8) != f(8)",
        "a = C(1)\nb = C(1)\nassert b.id == a.id + 1",
        "assert a.place() < b.place()",
        "self.assertEqual(f(3), 6)",
        "self.assertNotEqual(f(3), f(3))",
    ],
)
def test_an_assertion_of_one_value_or_of_two_that_differ_is_pinned(source: str) -> None:
    assert pinned(source)


@pytest.mark.parametrize(
    "source",
    [
        "assert f(10) ** 2 <= 10 < (f(10) + 1) ** 2",
        "assert f(25) * f(25) == 25",
        "r = f(5) * f(5)\nassert r == 25",
        "a = f(3)\na = a * f(3)\nassert a == 9",
        "assert f(3) == f(4)",
        "assert sorted(f(3)) == [1]",
        "assert 3 < f(1)",
        "self.assertLess(f(3), 6)",
        "self.assertEqual(f(3), f(f(3)))",
        "assert a.low <= a.high",
    ],
)
def test_an_assertion_that_two_answers_could_share_is_not(source: str) -> None:
    assert not pinned(source)
