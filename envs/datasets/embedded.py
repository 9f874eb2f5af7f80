"""Makes the embedded rows: word problems in the form of GSM8K, without network or files.

No question of the test split occurs in the train split of the same level, size and seed.
"""

from __future__ import annotations

from grpo.envs.datasets.size import refuse_size
from grpo.envs.datasets.stored import Placed
from grpo.envs.datasets.word_problems import generate
from grpo.plugins.errors import DatasetError, OptionError

_TEST_OFFSET = 1_000_003
_MOST_ROUNDS = 20


def read_embedded(level: str, size: int, seed: int, split: str) -> list[Placed]:
    """Returns the rows of a split with their places; `seed` is of the train split, and the test split has one of it.

    Raises OptionError for a size or a seed that cannot be; DatasetError: another split, or the level has too few
    different questions for a test split of that size.
    """
    refuse_size(size, "the embedded rows")
    if seed < 0:
        raise OptionError(f"data_seed={seed} must be 0 or more.")
    where = f"embedded ({level}, data_seed {seed}, {split})"
    train = generate(size, seed=seed, level=level)
    if split == "train":
        return _placed(train, where)
    if split != "test":
        raise DatasetError(f"the embedded dataset has no split '{split}'; it has 'train' and 'test'.")
    questions = {row["question"] for row in train}
    test: list[dict[str, str]] = []
    for number in range(1, _MOST_ROUNDS + 1):
        for row in generate(size, seed=seed + number * _TEST_OFFSET, level=level):
            if row["question"] not in questions:
                questions.add(row["question"])
                test.append(row)
        if len(test) >= size:
            return _placed(test[:size], where)
    raise DatasetError(
        f"{where}: only {len(test)} of {size} questions are not in the train split. Lower 'size' or choose a harder "
        "'level'."
    )


def _placed(rows: list[dict[str, str]], where: str) -> list[Placed]:
    return [(f"{where}, row {number}", row) for number, row in enumerate(rows, start=1)]
