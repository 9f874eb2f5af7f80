"""Provides the environment `email`, which asks for an e-mail with the content that its row names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.plugins.factory_decorators import env
from grpo.plugins.placed_rows import PlacedRows

if TYPE_CHECKING:
    import gymnasium


_SYSTEM = "Answer with the e-mail alone."
_USED_BY = {"subset": "local hub", "question": "local hub", "size": "embedded", "data_seed": "embedded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """Short e-mails; a row says to whom, what about, and who signs.

    Args:
        dataset: "embedded" (made-up occasions, no network), a .jsonl, .json or .parquet file, a folder with train and
            test files, or a dataset of the hub. The rubric `email` reads the columns `keywords`, `recipient`, `answer`,
            `phone`, `email` and `address`, and does without those that are missing.
        subset: the configuration of a hub dataset or a clone of one; default: its only one.
        question: the column with the task, in a file or hub dataset.
        system: the system message; "" sends none.
        ideal: also pay for being the ideal e-mail (the column `letter`) word by word, which a policy can only
            reach after a warm-up on the demonstrations.
        size: the number of embedded rows in each split.
        data_seed: seeds the embedded rows.
    """

    dataset: str = "embedded"
    subset: str | None = None
    question: str = "question"
    system: str = _SYSTEM
    ideal: bool = False
    size: int = 500
    data_seed: int = 0

    def env(self) -> gymnasium.Env[Any, Any]:
        from grpo.envs.email.occasions import ask_for_letter
        from grpo.envs.text.single_turn import OneTurnEnv

        ask = partial(
            ask_for_letter, where="the row given to reset", system=self.system, question=self.question, ideal=self.ideal
        )
        return OneTurnEnv(ask, partial(self.rows, "train"))

    def rows(self, split: str) -> Sequence[dict[str, Any]]:
        """Returns the checked rows of a split. Raises OptionError, or DatasetError with file and line."""
        from grpo.envs.datasets.generated import generated_split
        from grpo.envs.datasets.sources import dataset_kind, read_placed, refuse_unused
        from grpo.envs.datasets.stored import checked_rows
        from grpo.envs.email.occasions import draw_occasion, read_occasion

        kind = dataset_kind(self.dataset)
        refuse_unused(EMAIL.options, asdict(self), _USED_BY, kind)
        read = partial(read_occasion, question=self.question, ideal=self.ideal)
        if kind != "embedded":
            return checked_rows(read_placed(self.dataset, self.subset, split, kind), read)
        made = generated_split(
            lambda draws, _: draw_occasion(draws), size=self.size, seed=self.data_seed, split=split, name="email"
        )
        return PlacedRows((where, read(row, where)) for where, row in made)


EMAIL = env(name="email", version=1, rewards=("email",))(Email)
