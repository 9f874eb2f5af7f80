"""The environment `email`: write an e-mail that holds what its row asks for.

In: the options of a SPEC. Out: checked rows (made up, a local file's, or the hub's), and a gymnasium environment that
asks for their e-mails. This module is light; gymnasium is imported when an environment is made.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.envs.generated import generated_split
from grpo.envs.sources import dataset_kind, read_placed, refuse_unused
from grpo.plugins.placed_rows import PlacedRows
from grpo.plugins.signature import options_of
from grpo.plugins.specs import EnvSpec

if TYPE_CHECKING:
    import gymnasium

_SYSTEM = "Answer with the e-mail alone."
_USED_BY = {"subset": "hub", "question": "local hub", "size": "embedded", "data_seed": "embedded"}


def make(
    *,
    dataset: str = "embedded",
    subset: str | None = None,
    question: str = "question",
    system: str = _SYSTEM,
    ideal: bool = False,
    size: int = 500,
    data_seed: int = 0,
) -> gymnasium.Env[Any, Any]:
    """Short e-mails; a row says to whom, what about, and who signs.

    Args:
        dataset: "embedded" (made-up occasions, no network), a .jsonl, .json or .parquet file, a folder with train and
            test files, or a dataset of the hub. The rubric `email` reads the columns `keywords`, `recipient`, `answer`,
            `phone`, `email` and `address`, and does without those that are missing.
        subset: the configuration of a hub dataset; default: its only one.
        question: the column with the task, in a file or hub dataset.
        system: the system message; "" sends none.
        ideal: also pay for being the ideal e-mail (the column `letter`) word by word, which a policy can only
            reach after a warm-up on the demonstrations.
        size: the number of embedded rows in each split.
        data_seed: seeds the embedded rows.

    Returns:
        An environment of one turn; without a row, `reset` picks one of the train split.

    Raises:
        OptionError: an option has a value that cannot be used.
    """
    options = dict(locals())
    from grpo.envs.email_occasions import ask_for_letter
    from grpo.envs.single_turn import OneTurnEnv

    ask = partial(ask_for_letter, where="the row given to reset", system=system, question=question, ideal=ideal)
    return OneTurnEnv(ask, partial(rows, "train", **options))


def rows(
    split: str,
    *,
    dataset: str = "embedded",
    subset: str | None = None,
    question: str = "question",
    system: str = _SYSTEM,
    ideal: bool = False,
    size: int = 500,
    data_seed: int = 0,
) -> list[dict[str, Any]]:
    """Returns the checked rows of a split.

    Raises:
        OptionError: an option has a value that cannot be used.
        DatasetError: the dataset, or one of its rows (named by file and line), cannot be used.
    """
    given = dict(locals())
    from grpo.envs.email_occasions import draw_occasion, read_occasion

    kind = dataset_kind(dataset)
    refuse_unused(EMAIL.options, given, _USED_BY, kind)
    if kind == "embedded":
        placed = generated_split(
            lambda draws, _: draw_occasion(draws), size=size, seed=data_seed, split=split, name="email"
        )
    else:
        placed = read_placed(dataset, subset, split, kind)
    return PlacedRows((where, read_occasion(row, where, question=question, ideal=ideal)) for where, row in placed)


EMAIL = EnvSpec(
    name="email",
    version=1,
    factory=make,
    doc=inspect.getdoc(make) or "",
    options=options_of(make),
    dataset=rows,
    rewards=("email",),
    max_turns=1,
)
