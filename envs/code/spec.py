"""Provides the environment `code`: programming tasks whose answer is a program that passes the row's tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from grpo.plugins.errors import DatasetError, OptionError
from grpo.plugins.factory_decorators import env
from grpo.plugins.placed_rows import PlacedRows

if TYPE_CHECKING:
    import gymnasium

    from grpo.envs.datasets.stored import Placed

Level = Literal["exercises", "problems"]
_SYSTEM = "Answer with one block of Python:\n```python\nthe program\n```"
_USED_BY = {
    "subset": "local hub",
    "question": "local hub",
    "level": "embedded",
    "size": "embedded",
    "data_seed": "embedded",
}
_HELD_OUT = 5
PROBLEMS = Path(__file__).parent / "problems.jsonl"
"""Small programming problems of our own in the form of MBPP: a question, a solution and assertions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Programming tasks; the answer is a program that passes the row's tests.

    Args:
        dataset: "embedded" (our own tasks, no network), a .jsonl, .jsonl.gz, .json or .parquet file, a folder with
            train and test files, or a dataset of the hub such as google-research-datasets/mbpp.
        subset: the configuration of a hub dataset or a clone of one; default: its only one, and "full" for MBPP.
        system: a system message instead of the usual one, which asks for a fenced block; "" sends none.
        question: the column with the task, in a file or hub dataset; default: question, problem, text, description,
            statement, instruction or prompt, the first that there is.
        show_tests: how many assertions of `test_list` the question shows, so that the function's name is known.
        level: the embedded tasks: exercises (one expression each, as many as asked for) or problems (small programs).
        size: the number of embedded exercises in each split.
        data_seed: seeds the embedded tasks.
    """

    dataset: str = "embedded"
    subset: str | None = None
    system: str | None = None
    question: str = ""
    show_tests: int = 1
    level: Level = "exercises"
    size: int = 500
    data_seed: int = 0

    def env(self) -> gymnasium.Env[Any, Any]:
        """Returns an environment of one turn; without a row, `reset` picks a train row. Raises OptionError."""
        from grpo.envs.code.row import read_code_row
        from grpo.envs.text.single_turn import OneTurnEnv

        ask = partial(
            read_code_row,
            where="the row given to reset",
            question=self.question,
            system=_SYSTEM if self.system is None else self.system,
            shown=self.show_tests,
        )
        return OneTurnEnv(ask, partial(self.rows, "train"))

    def rows(self, split: str) -> Sequence[dict[str, Any]]:
        """Returns the checked rows of a split, with their columns as they are. Raises OptionError, DatasetError."""
        from grpo.envs.code.row import read_code_row
        from grpo.envs.datasets.sources import dataset_kind, read_placed, refuse_unused
        from grpo.envs.datasets.stored import checked_rows

        if self.level not in get_args(Level):
            raise OptionError(f"no level '{self.level}'. Choose one of: {', '.join(get_args(Level))}.")
        if self.show_tests < 0:
            raise OptionError(f"show_tests={self.show_tests} must be 0 or more.")
        kind = dataset_kind(self.dataset)
        refuse_unused(CODE.options, asdict(self), _USED_BY, kind)

        def read(row: object, where: str) -> dict[str, Any]:
            return dict(read_code_row(row, where, question=self.question).row)

        def asks(row: dict[str, Any]) -> str:
            return read_code_row(row, "", question=self.question, shown=self.show_tests).question

        if kind == "embedded":
            made = _embedded(self.level, self.size, self.data_seed, split)
            return PlacedRows((where, read(row, where)) for where, row in made)
        return checked_rows(read_placed(self.dataset, self.subset, split, kind), read, asks)


def _embedded(level: str, size: int, seed: int, split: str) -> list[Placed]:
    """Returns embedded tasks with their places; every fifth is held out for the test split.

    Raises OptionError for too small a size or seed, or too few exercises; DatasetError for another split.
    """
    import json

    from grpo.envs.code.exercises import all_exercises

    if size < 1 or seed < 0:
        raise OptionError(f"size={size} must be 1 or more, and data_seed={seed} 0 or more.")
    if split not in ("train", "test"):
        raise DatasetError(f"the embedded dataset has no split '{split}'; it has 'train' and 'test'.")
    own = PROBLEMS.read_text(encoding="ascii").splitlines() if level == "problems" else []
    every = list(map(json.loads, own)) or all_exercises(seed)
    chosen = [row for number, row in enumerate(every) if (number % _HELD_OUT == 0) is (split == "test")]
    if level == "exercises" and size > len(chosen) and split == "train":
        raise OptionError(f"size={size}: there are {len(chosen)} embedded exercises. Choose that or fewer.")
    where = f"embedded ({level}, data_seed {seed}, {split})"
    kept = chosen[:size] if level == "exercises" else chosen
    return [(f"{where}, row {number}", row) for number, row in enumerate(kept, start=1)]


CODE = env(
    name="code",
    version=1,
    rewards=("code:credit=fraction",),
    verifier="code",
    hub_dataset="google-research-datasets/mbpp",
)(Code)
