"""One question has one answer: what counts as the same question, and what is repeated."""

from typing import Any

from grpo.rewards.code.guest.twins import Twins


def called(
    twins: Any, number: Any, given: Any, said: Any, *, kind: str = "call", name: str = "", acts: Any = True
) -> Any:
    key = twins.question(kind, number, name, given, [], acts=acts)
    return twins.answered(key, said, said)


def test_a_function_that_answers_equal_calls_in_two_ways_has_changed() -> None:
    twins = Twins(consistent=False)
    twins.function(1)
    assert [called(twins, 1, [10], 0), called(twins, 1, [11], 5)] == [0, 5]
    assert not twins.changed
    assert called(twins, 1, [10], 3) == 3
    assert twins.changed


def test_the_first_answer_is_repeated_where_answers_are_to_be_consistent() -> None:
    twins = Twins(consistent=True)
    twins.function(1)
    first = called(twins, 1, [10], ["l", [1]])
    first.append("changed by the tests")
    assert called(twins, 1, [10], ["l", [2]]) == ["l", [1]]


def test_a_function_without_arguments_may_count() -> None:
    twins = Twins(consistent=False)
    twins.function(1)
    assert [called(twins, 1, [], 1), called(twins, 1, [], 2)] == [1, 2]
    assert not twins.changed


def test_a_call_of_another_function_in_between_may_have_changed_the_answer() -> None:
    twins = Twins(consistent=False)
    twins.function(1)
    twins.function(2)
    called(twins, 1, ["a"], 0)
    called(twins, 2, ["a", 4], None)
    called(twins, 1, ["a"], 4)
    assert not twins.changed


def test_objects_made_alike_are_one_until_something_is_done_to_one_of_them() -> None:
    twins = Twins(consistent=False)
    for number in (5, 6):
        twins.made(1, ["x"], [], number)
    assert twins.standing(5) is twins.standing(6)
    called(twins, 5, [3], None, kind="set", name="size")
    assert twins.standing(5) is not twins.standing(6)
    called(twins, 5, [], 3, kind="get", name="size", acts=False)
    called(twins, 6, [], 0, kind="get", name="size", acts=False)
    assert not twins.changed


def test_objects_made_alike_that_differ_have_changed() -> None:
    twins = Twins(consistent=False)
    for number in (5, 6):
        twins.made(1, ["x"], [], number)
        called(twins, number, [], number, kind="get", name="size", acts=False)
    assert twins.changed
