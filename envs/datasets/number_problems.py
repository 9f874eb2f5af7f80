"""Reads word problems whose answer is a number from any dataset, and checks each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from grpo.plugins.errors import OptionError
from grpo.plugins.placed_rows import PlacedRows
from grpo.plugins.specs import Option

Level = Literal["easy", "medium", "mixed", "hard"]
_USED_BY = {"subset": "local hub", "level": "embedded", "size": "embedded", "data_seed": "embedded"}


def read_number_problems(split: str, options: Sequence[Option], given: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Returns checked rows with `question`, `answer` and `solution`. Raises OptionError, DatasetError."""
    from grpo.envs.datasets.problem import read_problem
    from grpo.envs.datasets.sources import dataset_kind, read_placed, refuse_unused
    from grpo.envs.datasets.stored import checked_rows
    from grpo.envs.datasets.word_problems import read_embedded

    if given["level"] not in get_args(Level):
        raise OptionError(f"no level '{given['level']}'. Choose one of: {', '.join(get_args(Level))}.")
    kind = dataset_kind(given["dataset"])
    refuse_unused(options, given, _USED_BY, kind)

    def read(row: object, where: str) -> dict[str, Any]:
        return read_problem(row, where, question=given["question"], answer=given["answer"]).row()

    if kind != "embedded":
        return checked_rows(read_placed(given["dataset"], given["subset"], split, kind), read)
    made = read_embedded(given["level"], given["size"], given["data_seed"], split)
    return PlacedRows((where, read(row, where)) for where, row in made)
