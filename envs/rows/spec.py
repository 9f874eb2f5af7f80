"""Provides the environment `rows`: the user's own prompts and answers, with a fitting verifier and rewards."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from grpo.plugins.errors import OptionError
from grpo.plugins.factory_decorators import env

if TYPE_CHECKING:
    import gymnasium

    from grpo.envs.datasets.stored import StoredRows
    from grpo.envs.rows.row import Columns
    from grpo.envs.text.single_turn import Asked
    from grpo.plugins.specs import EnvSpec

_OWN_REWARD = ("code", "countdown", "knights_and_knaves")
_LOOKED_AT = 100  # first rows in which columns with content are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a prompt and an answer of your own: `rows:dataset=my.jsonl`.

    Args:
        dataset: a .jsonl, .json, .csv, .parquet or .arrow file, a folder with train and test files, what `save_to_disk`
            wrote, a clone of a hub repository, or a dataset of the hub (owner/name).
        subset: the configuration of a hub dataset or a clone of one; default: its only one.
        prompt: the column with the prompt, text or a list of messages; default: prompt, question, problem, instruction,
            query, input, task, messages, conversations or ctx, the first that there is.
        answer: the column with the right answer, text or a number, or a list of which each is right; default: answer,
            final_answer, expected_answer, ground_truth, reward_model.ground_truth, gold, target, solution, expected,
            label, reference, answers, answerKey, correct_answer, correct, output or response, the first that there is;
            "" for none.
        context: the column with a text that the prompt is about; default: context, passage, article, document, story,
            paragraph or background, and input beside an instruction; "" for none.
        choices: the column with what there is to choose from, which is shown by letters; default: choices, options or
            endings; "" for none.
        system: a system message in the place of the rows' own; "" sends none.
        verifier: what judges the answers; default: math, which reads numbers, formulas, letters of choices and words;
            none where there are no answers; "none" for none.
        demonstration: the column with a worked completion, for the warm-up.
    """

    dataset: str | None = None
    subset: str | None = None
    prompt: str | None = None
    answer: str | None = None
    context: str | None = None
    choices: str | None = None
    system: str | None = None
    verifier: str | None = None
    demonstration: str = ""

    def env(self) -> gymnasium.Env[Any, Any]:
        """Returns an environment of one turn; without a row, `reset` picks one of the train split."""
        from grpo.envs.text.single_turn import OneTurnEnv

        return OneTurnEnv(self._asked, partial(self.rows, "train"))

    def rows(self, split: str) -> Sequence[dict[str, Any]]:
        """Returns the checked rows of a split, with their columns as they are. Raises OptionError, DatasetError."""
        from grpo.envs.datasets.stored import MOST_KINDS, ReadRows
        from grpo.envs.rows.row import is_plain, read_pair

        placed = self._placed(split)
        columns = self._first_columns(placed)
        sizes, asked, kinds, known = array("q"), array("q"), list[int](), set[tuple[Any, ...]]()
        for index, row in enumerate(placed.scan()):
            names = tuple(row) if isinstance(row, dict) else ()
            if names not in known or not names:
                self._refuse_others(row, placed.place(index), columns, placed.place(0))
                known.add(names)
                if len(kinds) < MOST_KINDS:
                    kinds.append(index)
            if is_plain(row, columns):
                sizes.append(len(row[columns.prompt]))
                asked.append(hash(row[columns.prompt]))
                continue
            pair = read_pair(row, placed.place(index), columns, self.system)
            sizes.append(sum(len(message["content"]) for message in pair.messages) + len(pair.demonstration))
            asked.append(hash(pair.messages[-1]["content"]))
        return ReadRows(placed, lambda row, where: dict(row), sizes, asked, kinds)

    def settled(self, spec: EnvSpec) -> EnvSpec:
        """Returns a spec with the verifier and the rewards that fit the rows, and a note of what was guessed.

        Raises OptionError: no dataset is named; DatasetError: the dataset, or its first row, cannot be used.
        """
        from grpo.envs.rows.row import unused_columns

        placed = self._placed("train")
        columns = self._first_columns(placed)
        verifier = self.verifier or ("math" if columns.answer else "none")
        reward = verifier if verifier in _OWN_REWARD else "math" if columns.answer else None
        guessed = {
            "prompt": columns.prompt if self.prompt is None else None,
            "context": (columns.context or None) if self.context is None else None,
            "choices": (columns.choices or None) if self.choices is None else None,
            "answer": columns.answer if self.answer is None else None,
            "verifier": verifier if self.verifier is None and columns.answer else None,
        }
        text = ", ".join(f"{name}={value or 'none'}" for name, value in guessed.items() if value is not None)
        text += " (unless the run names one)" if guessed["verifier"] is not None else ""
        notes = [f"guessed {text}. To change one, set it in the SPEC."] if text else []
        unjudged = ""
        if not columns.answer and self.answer is None:
            row: Any = placed[0][1]
            lack = f"found no column for the answer (the row has: {', '.join(map(str, row))})"
            notes.insert(0, f"{lack}. Name it with answer=COLUMN.")
            unjudged = f"{self.dataset}: {lack}. Name it with answer=COLUMN, or name a reward with --reward."
        first = (row for _, row in islice(placed, _LOOKED_AT))
        unused = dict.fromkeys(name for row in first if isinstance(row, dict) for name in unused_columns(row, columns))
        if unused:
            notes.append(f"Columns not shown to the policy: {', '.join(unused)}. Rewards read them by their names.")
        return replace(
            spec,
            rewards=() if reward is None else (reward,),
            verifier=None if verifier == "none" else verifier,
            note=f"rows of {self.dataset}: {' '.join(notes)}" if notes else "",
            unjudged=unjudged,
        )

    def _placed(self, split: str) -> StoredRows:
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

    def _first_columns(self, placed: StoredRows) -> Columns:
        """Raises if a column that the user named is missing."""
        from grpo.envs.rows.row import refuse_missing

        where, row = placed[0]
        columns = self._columns(row, where)
        refuse_missing(row, where, {"context": self.context, "choices": self.choices})
        return columns

    def _columns(self, row: object, where: str) -> Columns:
        from grpo.envs.rows.row import choose_columns

        names = ("prompt", "answer", "demonstration", "context", "choices")
        return choose_columns(row, where, {name: getattr(self, name) for name in names})

    def _refuse_others(self, row: object, where: str, first: Columns, first_where: str) -> None:
        """Refuses a row whose columns would be guessed differently from those of the first row."""
        from grpo.envs.rows.row import refuse_empty
        from grpo.plugins.errors import DatasetError

        others = self._columns(row, where)
        if (others.prompt, others.answer) != (first.prompt, first.answer):
            refuse_empty(row, where, (first.prompt, first.answer), first_where)
            raise DatasetError(
                f"{where}: by its columns prompt={others.prompt} and answer={others.answer or 'none'} would be read, "
                f"of the first row prompt={first.prompt} and answer={first.answer or 'none'}. Name the columns with "
                "the options 'prompt' and 'answer'."
            )

    def _asked(self, row: object) -> Asked:
        from grpo.envs.rows.row import read_pair
        from grpo.envs.text.single_turn import Asked

        where = "the row given to reset"
        pair = read_pair(row, where, self._columns(row, where), self.system)
        shown: dict[str, Any] = dict(row)  # type: ignore[call-overload]
        if not isinstance(shown.get("question"), str):  # messages are no question that a reward could read
            shown["question"] = pair.question
        if pair.answer is not None:
            shown["answer"] = pair.answer
        golds = [pair.answer] if isinstance(pair.answer, str) else pair.answer or [""]
        return Asked(pair.question, shown, demonstration=pair.demonstration, gold=golds[0], messages=pair.messages)


def settle(**options: Any) -> EnvSpec:
    """Returns the spec for these options; see `Rows.settled`."""
    return Rows(**options).settled(ROWS)


ROWS = env(name="rows", version=1, settle=settle)(Rows)
