"""Signatures are read as the contract says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from grpo import Completion, reward, verifier
from grpo.plugins._spec.signature import options_of, read_signature
from grpo.plugins.errors import SpecError

if TYPE_CHECKING:
    from fractions import Fraction

Level = Literal["easy", "hard"]


def test_columns_are_positional_and_options_keyword_only() -> None:
    @reward(version=1)
    def score(completion: str, answer: str, hint: str = "", *, tolerance: float = 0.1, level: Level) -> float:
        """Scores.

        More."""
        return 1.0

    assert [(column.name, column.required) for column in score.columns] == [("answer", True), ("hint", False)]
    assert [(option.name, option.type, option.required) for option in score.options] == [
        ("tolerance", float, False),
        ("level", Level, True),
    ]
    assert score.doc == "Scores.\n\nMore."
    assert (score.name, score.whole, score.batch) == ("score", False, False)
    assert score("x", "y", level="easy") == 1.0


def test_a_whole_completion_is_asked_for_by_its_annotation() -> None:
    @verifier(version=1)
    def judge(completion: Completion) -> None: ...

    @reward(version=1, batch=True)
    def many(completions: list[Completion]) -> list[float]: ...

    assert judge.whole
    assert many.whole


def test_one_annotation_that_cannot_be_resolved_leaves_the_others_alone() -> None:
    def make(*, size: int = 3, level: Level = "easy") -> Fraction: ...

    assert [option.type for option in options_of(make)] == [int, Level]


@pytest.mark.parametrize("option", ["weight", "timeout"])
def test_reserved_option_names_are_refused(option: str) -> None:
    namespace: dict[str, object] = {}
    exec(f"def score(completion, *, {option}=1): return 1.0", namespace)
    with pytest.raises(SpecError, match=f"'{option}' is reserved"):
        read_signature(namespace["score"])  # type: ignore[arg-type]


def test_hidden_parameters_are_refused() -> None:
    with pytest.raises(SpecError, match="hides what the function reads"):

        @reward(version=1)
        def score(completion: str, *columns: str) -> float: ...


def test_a_list_of_completions_says_which_list_it_is() -> None:
    def score(completions: list[str]) -> float: ...

    decorators: list[Any] = [reward(), verifier()]
    for decorate in decorators:
        with pytest.raises(SpecError, match="Name it 'completion', or declare which list it is"):
            decorate(score)


def test_columns_may_have_other_names() -> None:
    @reward(version=1, aliases={"numbers": ["nums", "digits"]})
    def score(completion: str, target: int, numbers: list[int]) -> float: ...

    assert [column.names for column in score.columns] == [("target",), ("numbers", "nums", "digits")]
    assert score.columns[1].found_in({"digits": [1], "nums": [2]}) == "nums"
    assert score.columns[1].found_in({"target": 1}) is None


@pytest.mark.parametrize("aliases", [{"numbrs": ["nums"]}, {"numbers": "nums"}, {"numbers": ["target"]}])
def test_other_names_that_cannot_be_meant_are_refused(aliases: dict[str, list[str]]) -> None:
    with pytest.raises(SpecError, match="alias"):

        @reward(version=1, aliases=aliases)
        def score(completion: str, target: int, numbers: list[int]) -> float: ...


def test_the_completion_comes_first() -> None:
    with pytest.raises(SpecError, match="first parameter"):

        @reward(version=1)
        def score(answer: str, completion: str) -> float: ...


@pytest.mark.parametrize("as_published", [["table"], "variant"])
def test_a_published_text_can_only_be_chosen_by_an_option_that_exists(as_published: list[str]) -> None:
    with pytest.raises(SpecError, match="as_published"):

        @reward(version=1, as_published=as_published)
        def score(completion: str, *, variant: str = "mine") -> float:
            return 0.0
