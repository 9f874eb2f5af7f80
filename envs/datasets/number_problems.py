"""Word problems whose answer is a number, wherever they come from: options in, checked rows with their places out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from grpo.plugins.errors import OptionError
from grpo.plugins.placed_rows import PlacedRows
from grpo.plugins.specs import Option

if TYPE_CHECKING:
    from grpo.envs.datasets.stored import Placed

Level = Literal["easy", "medium", "mixed", "hard"]
_USED_BY = {"subset": "local hub", "level": "embedded", "size": "embedded", "data_seed": "embedded"}


def read_number_problems(split: str, options: Sequence[Option], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the checked rows of a split, each with the columns `question`, `answer` and `solution`.

    Args:
        split: "train" or "test".
        options: those of the environment, `dataset`, `subset`, `level`, `size`, `data_seed`, `question` and `answer`
            among them.
        given: their values.

    Raises:
        OptionError: an option has a value that cannot be used.
        DatasetError: the dataset, or one of its rows (named by file and line), cannot be used.
    """
    from grpo.envs.datasets.embedded import read_embedded
    from grpo.envs.datasets.problem import read_problem
    from grpo.envs.datasets.sources import dataset_kind, read_placed, refuse_unused

    if given["level"] not in get_args(Level):
        raise OptionError(f"no level '{given['level']}'. Choose one of: {', '.join(get_args(Level))}.")
    kind = dataset_kind(given["dataset"])
    refuse_unused(options, given, _USED_BY, kind)
    placed: Iterable[Placed]
    if kind == "embedded":
        placed = read_embedded(given["level"], given["size"], given["data_seed"], split)
    else:
        placed = read_placed(given["dataset"], given["subset"], split, kind)
    return PlacedRows(
        (where, read_problem(row, where, question=given["question"], answer=given["answer"]).row())
        for where, row in placed
    )
