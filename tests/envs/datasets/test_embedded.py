"""The embedded rows: reproducible, and no test question is trained on."""

from __future__ import annotations

import pytest

from grpo.envs.datasets.problem import read_problem
from grpo.envs.datasets.word_problems import read_embedded
from grpo.plugins.errors import DatasetError, OptionError


@pytest.mark.parametrize("level", ["easy", "medium", "mixed", "hard"])
def test_no_test_question_occurs_in_train_or_twice(level: str) -> None:
    train, test = (
        [read_problem(row, where).question for where, row in read_embedded(level, 1000, 0, split)]
        for split in ("train", "test")
    )
    assert len(train) == len(test) == len(set(test)) == 1000
    assert not set(train) & set(test)


def test_a_seed_gives_the_same_rows_and_another_seed_others() -> None:
    for split in ("train", "test"):
        assert read_embedded("mixed", 50, 3, split) == read_embedded("mixed", 50, 3, split)
        assert read_embedded("mixed", 50, 3, split) != read_embedded("mixed", 50, 4, split)


def test_rows_know_their_place() -> None:
    assert read_embedded("hard", 2, 7, "test")[1][0] == "embedded (hard, data_seed 7, test), row 2"


@pytest.mark.parametrize(("size", "seed"), [(0, 0), (-1, 0), (5, -1)])
def test_a_size_or_seed_that_is_too_small_is_an_error(size: int, seed: int) -> None:
    with pytest.raises(OptionError):
        read_embedded("mixed", size, seed, "train")


def test_other_splits_are_errors() -> None:
    with pytest.raises(DatasetError, match="no split 'validation'"):
        read_embedded("mixed", 5, 0, "validation")
