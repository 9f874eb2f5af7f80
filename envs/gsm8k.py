"""The environment `gsm8k`: grade-school word problems whose answer is one number.

In: the options of a SPEC. Out: checked rows (embedded ones, a local file's, or the hub's), and a gymnasium
environment that asks their questions. This module is light; gymnasium is imported when an environment is made.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from grpo.envs.embedded import read_embedded
from grpo.envs.problem import read_problem
from grpo.envs.sources import dataset_kind, read_placed, refuse_unused
from grpo.envs.templates import TemplateName, choose_template
from grpo.plugins.errors import OptionError
from grpo.plugins.placed_rows import PlacedRows
from grpo.plugins.signature import options_of
from grpo.plugins.specs import EnvSpec

if TYPE_CHECKING:
    import gymnasium

Level = Literal["easy", "medium", "mixed", "hard"]
_USED_BY = {"subset": "hub", "level": "embedded", "size": "embedded", "data_seed": "embedded"}


def make(
    *,
    dataset: str = "embedded",
    subset: str | None = None,
    template: TemplateName = "reasoning",
    system: str | None = None,
    pattern: str | None = None,
    level: Level = "mixed",
    size: int = 1000,
    data_seed: int = 0,
    question: str = "question",
    answer: str = "answer",
) -> gymnasium.Env[Any, Any]:
    """Grade-school word problems; the answer is one number.

    Args:
        dataset: "embedded" (made-up problems, no network), a .jsonl or .parquet file, a folder with train and test
            files, or a dataset of the hub such as openai/gsm8k.
        subset: the configuration of a hub dataset; default: "main" for openai/gsm8k, else its only one.
        template: the layout asked for: reasoning (<reasoning>, <answer>), solution (<start_working_out>,
            <SOLUTION>), think (<think>, then the answer), hash (#### and the answer) or custom.
        system: a system message instead of the template's own; "" sends none.
        pattern: the layout of template=custom, with {reasoning} and {answer} in their places.
        level: the embedded problems: easy (1 step), medium (2), mixed (1 to 3) or hard (3, larger numbers).
        size: the number of embedded problems in each split.
        data_seed: seeds the embedded problems.
        question: the column with the question, in a file or hub dataset.
        answer: the column with the gold answer: a worked text ending in "#### 72", or the number alone.

    Returns:
        An environment of one turn; without a row, `reset` picks one of the train split.

    Raises:
        OptionError: an option has a value that cannot be used.
    """
    options = dict(locals())
    from grpo.envs.single_turn import QuestionEnv

    chosen = choose_template(template, system=system, pattern=pattern)
    return QuestionEnv(chosen, partial(rows, "train", **options), question=question, answer=answer)


def rows(
    split: str,
    *,
    dataset: str = "embedded",
    subset: str | None = None,
    template: TemplateName = "reasoning",
    system: str | None = None,
    pattern: str | None = None,
    level: Level = "mixed",
    size: int = 1000,
    data_seed: int = 0,
    question: str = "question",
    answer: str = "answer",
) -> list[dict[str, Any]]:
    """Returns the checked rows of a split, each with the columns `question`, `answer` and `solution`.

    The options are those of `make`. Every row is read and checked, so a bad one shows before any model loads.

    Raises:
        OptionError: an option has a value that cannot be used.
        DatasetError: the dataset, or one of its rows (named by file and line), cannot be used.
    """
    given = dict(locals())
    choose_template(template, system=system, pattern=pattern)
    if level not in get_args(Level):
        raise OptionError(f"no level '{level}'. Choose one of: {', '.join(get_args(Level))}.")
    kind = dataset_kind(dataset)
    refuse_unused(GSM8K.options, given, _USED_BY, kind)
    embedded = kind == "embedded"
    placed = read_embedded(level, size, data_seed, split) if embedded else read_placed(dataset, subset, split, kind)
    return PlacedRows(
        (where, read_problem(row, where, question=question, answer=answer).row()) for where, row in placed
    )


GSM8K = EnvSpec(
    name="gsm8k",
    version=1,
    factory=make,
    doc=inspect.getdoc(make) or "",
    options=options_of(make),
    dataset=rows,
    rewards=("proximity", "gsm8k.soft_format"),
    verifier="gsm8k",
    max_turns=1,
    hub_dataset="openai/gsm8k",
)
