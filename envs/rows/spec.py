"""The environment `rows`: rows of a prompt and an answer, from any data set, as they are.

In: the options of a SPEC. Out: checked rows, and a gymnasium environment that asks their prompts. Which verifier and
rewards fit follows from the rows, so the spec is settled when they are known. This module is light; gymnasium is
imported when an environment is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.plugins.errors import OptionError
from grpo.plugins.factory_decorators import env
from grpo.plugins.placed_rows import PlacedRows

if TYPE_CHECKING:
    import gymnasium

    from grpo.envs.datasets.files import Placed
    from grpo.envs.rows.row import Columns
    from grpo.envs.text.single_turn import Asked
    from grpo.plugins.specs import EnvSpec

_OWN_REWARD = ("code", "countdown", "knights_and_knaves")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a prompt and an answer of your own: `rows:dataset=my.jsonl`.

    Args:
        dataset: a .jsonl, .json, .csv, .parquet or .arrow file, a folder with train and test files, what `save_to_disk`
            wrote, a clone of a hub repository, or a dataset of the hub (owner/name).
        subset: the configuration of a hub dataset or a clone of one; default: its only one.
        prompt: the column with the prompt, text or a list of messages; default: prompt, question, problem, instruction,
            query, input, task or messages, the first that there is.
        answer: the column with the right answer, text or a number, or a list of which each is right; default: answer,
            ground_truth, gold, target, solution, expected, label or reference, the first that there is; "" for none.
        system: a system message in the place of the rows' own; "" sends none.
        verifier: what judges the answers; default: math, which reads numbers, formulas, letters of choices and words;
            none where there are no answers; "none" for none.
        demonstration: the column with a worked completion, for the warm-up.
    """

    dataset: str | None = None
    subset: str | None = None
    prompt: str | None = None
    answer: str | None = None
    system: str | None = None
    verifier: str | None = None
    demonstration: str = ""

    def env(self) -> gymnasium.Env[Any, Any]:
        """Returns an environment of one turn; without a row, `reset` picks one of the train split."""
        from grpo.envs.text.single_turn import OneTurnEnv

        return OneTurnEnv(self._asked, partial(self.rows, "train"))

    def rows(self, split: str) -> list[dict[str, Any]]:
        """Returns the checked rows of a split, with their columns as they are.

        Raises:
            OptionError: no dataset is named.
            DatasetError: the dataset, or one of its rows (named by file and line), cannot be used.
        """
        from grpo.envs.rows.row import read_pair

        placed = self._placed(split)
        where, first = placed[0]
        columns = self._columns(first, where)
        for where, row in placed:
            read_pair(row, where, columns)
            if (others := self._columns(row, where)) != columns:
                raise other_columns(where, others, columns)
        return PlacedRows((where, dict(row)) for where, row in placed)  # type: ignore[call-overload]  # read_pair looked

    def settled(self) -> EnvSpec:
        """Returns the spec with the verifier and the rewards that fit the rows, and a note of what was guessed.

        Raises:
            OptionError: no dataset is named.
            DatasetError: the dataset, or its first row, cannot be used.
        """
        where, row = self._placed("train")[0]
        columns = self._columns(row, where)
        verifier = self.verifier or ("math" if columns.answer else "none")
        reward = verifier if verifier in _OWN_REWARD else "math" if columns.answer else None
        guessed = {
            "prompt": columns.prompt if self.prompt is None else None,
            "answer": columns.answer if self.answer is None else None,
            "verifier": verifier if self.verifier is None and columns.answer else None,
        }
        said = ", ".join(f"{name}={value or 'none'}" for name, value in guessed.items() if value is not None)
        return replace(
            ROWS,
            rewards=() if reward is None else (reward,),
            verifier=None if verifier == "none" else verifier,
            note=f"rows of {self.dataset}: guessed {said}. Name in the SPEC what is to be otherwise." if said else "",
        )

    def _placed(self, split: str) -> list[Placed]:
        from grpo.envs.datasets.sources import dataset_kind, read_placed

        if not self.dataset:
            raise OptionError(
                "env 'rows' needs a dataset: --env rows:dataset=FILE, or --dataset FILE beside it. Its columns are "
                "named as in rows:dataset=FILE,prompt=COLUMN,answer=COLUMN."
            )
        kind = dataset_kind(self.dataset)
        if kind == "embedded":
            raise OptionError("env 'rows' has no embedded rows. Name a file, a folder or a hub id.")
        return read_placed(self.dataset, self.subset, split, kind)

    def _columns(self, row: object, where: str) -> Columns:
        from grpo.envs.rows.row import choose_columns

        return choose_columns(row, where, self.prompt, self.answer, self.demonstration)

    def _asked(self, row: object) -> Asked:
        from grpo.envs.rows.row import read_pair
        from grpo.envs.text.single_turn import Asked

        where = "the row given to reset"
        pair = read_pair(row, where, self._columns(row, where), self.system)
        shown: dict[str, Any] = {"question": pair.question, **dict(row)}  # type: ignore[call-overload]
        if pair.answer is not None:
            shown["answer"] = pair.answer
        golds = [pair.answer] if isinstance(pair.answer, str) else pair.answer or [""]
        return Asked(pair.question, shown, demonstration=pair.demonstration, gold=golds[0], messages=pair.messages)


def other_columns(where: str, found: Columns, first: Columns) -> Exception:
    """Returns what to raise for a row whose columns would be guessed otherwise than those of the first row."""
    from grpo.plugins.errors import DatasetError

    return DatasetError(
        f"{where}: by its columns prompt={found.prompt} and answer={found.answer or 'none'} would be read, of the "
        f"first row prompt={first.prompt} and answer={first.answer or 'none'}. Name the columns with the options "
        "'prompt' and 'answer'."
    )


def settle(**options: Any) -> EnvSpec:
    """Returns the spec for these options; see `Rows.settled`."""
    return Rows(**options).settled()


ROWS = env(name="rows", version=1, settle=settle)(Rows)
