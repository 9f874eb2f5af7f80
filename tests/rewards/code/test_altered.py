"""Altered tests: a right answer fails each altered assertion, and what equals everything holds in some."""

import math
import random
import unittest
from typing import Any
from unittest.mock import Mock

import pytest

from grpo.rewards.code.altered import altered_tests
from grpo.rewards.code.guest.near import NEAR, far, near
from grpo.rewards.code.guest.soft import ENDED, OBJECTS, REACHED, softening
from grpo.rewards.code.guest.together import _with_judge
from grpo.rewards.code.ways import RUNS


class Everything:
    """Says yes to whatever it is asked."""

    def answer(self, *_: Any) -> bool:
        return True

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = answer
    __hash__ = None

    def __ne__(self, other: object) -> bool:
        return False

    def __sub__(self, other: object) -> float:
        return 0.0

    __rsub__ = __sub__


Everything.__module__ = "solution"
RIGHT = [1, 5, "abc", 2.5]
FORMS = [
    ("assert f({0}) == {0}", True),
    ("assert {0} == f({0})", True),
    ("wanted = {0}\nassert f({0}) == wanted", True),
    ("assert not f({0}) != {0}", True),
    ("assert [f({0}), 7] == [{0}, 7]", True),
    ("assert f({0}) in ({0}, {0} * 2)", True),
    ("assert all(f(x) == x for x in [{0}])", True),
    ("assert f({0}) == {0} and f(1) == 1", True),
    ("assert f({0}) == {0} or f({0}) == {0} * 2", True),
    ("assert f({0}).__eq__({0})", True),
    ("assert any([f({0}) == {0}, False])", True),
    ("assert bool(f({0}) == {0})", True),
    ("assert 1 == sum(f(x) == x for x in [{0}])", True),
    ("t.assertEqual(f({0}), {0})", True),
    ("t.assertTrue(f({0}) == {0})", True),
    ("m = Mock()\nm(f({0}))\nm.assert_called_once_with({0})", True),
    ("if f({0}) != {0}:\n    raise AssertionError", True),
    ("for x, y in [({0}, {0})]:\n    assert f(x) == y", True),
    ("with pytest.raises(ZeroDivisionError):\n    f(1 / 0)", False),
    ("t.assertRaises(ZeroDivisionError, divmod, 1, 0)", False),
    ("assert f({0}) is not None", False),
]
NUMBERS = [
    ("assert f({0}) < {0} + 1", True),
    ("assert {0} - 1 <= f({0}) <= {0} + 1", True),
    ("assert abs(f({0}) - {0}) < 1e-6", True),
    ("wanted = {0}\nassert abs(f({0}) - wanted) < 1e-6", True),
    ("assert f({0}) == pytest.approx({0})", True),
    ("assert math.isclose(f({0}), {0})", False),
    ("t.assertAlmostEqual(f({0}), {0})", True),
    ("t.assertLess(f({0}), 100)", True),
]
CASES = [(form.format(repr(value)), finds) for form, finds in FORMS for value in RIGHT]
CASES += [(form.format(value), finds) for form, finds in NUMBERS for value in RIGHT if not isinstance(value, str)]


def held(tests: str, answer: Any) -> list[int]:
    """Returns how the altered assertions went in all runs."""
    went: list[int] = []
    for run in range(RUNS):
        source, _ = altered_tests(tests, ("f",), run)
        judge, notes = softening(run)
        code = _with_judge(compile(source, "<altered>", "exec"), judge)
        exec(code, {"f": answer, "pytest": pytest, "math": math, "Mock": Mock, "t": unittest.TestCase()})
        went += [value for key, value in notes().items() if key not in (OBJECTS, REACHED, ENDED)]
    return went


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize(("tests", "finds_feigned"), CASES)
def test_a_right_answer_fails_each_altered_assertion(tests: str, finds_feigned: bool) -> None:
    assert set(held(tests, lambda x: x)) == {0}
    assert not finds_feigned or any(held(tests, lambda _: Everything()))


@pytest.mark.parametrize("modulus", range(2, 13))
def test_a_remainder_equals_at_most_half_of_the_other_numbers(modulus: int) -> None:
    rng = random.Random(5)
    for value in (0, 1, 5, 12, -7, 360):
        for _ in range(50):
            others = [(near if trial in NEAR else far)(value, rng, trial) for trial in range(RUNS)]
            equal = [other % modulus == value % modulus for other in others]
            assert sum(equal) <= RUNS // 2
            assert not all(equal[trial] for trial in NEAR)
