"""Provides the environment `countdown`, which asks for an expression of given numbers that reaches a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from grpo.plugins.errors import OptionError, did_you_mean
from grpo.plugins.factory_decorators import env
from grpo.plugins.placed_rows import PlacedRows

if TYPE_CHECKING:
    import gymnasium

    from grpo.envs.text.templates import Template

Layout = Literal["reasoning", "solution", "think", "custom"]  # the verifier reads no expression behind ####
_MADE_UP = ("fewest", "most", "highest", "highest_target", "size", "data_seed")
_USED_BY = {"subset": "local hub", **dict.fromkeys(_MADE_UP, "embedded")}
_MOST_NUMBERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Countdown:
    """Countdown puzzles: reach a target from some numbers with + - * / and brackets.

    Embedded puzzles are made from a solution, so each has one; the solution is the demonstration.

    Args:
        dataset: "embedded" (made up, no network), a .jsonl, .json or .parquet file, a folder with train and test files,
            or a dataset of the hub. Rows have `target` and `numbers` (or `nums`).
        subset: the configuration of a hub dataset or a clone of one; default: its only one.
        template: the layout asked for: reasoning, solution, think or custom, as for gsm8k.
        system: a system message instead of the template's own; "" sends none.
        pattern: the layout of template=custom, with {reasoning} and {answer} in their places.
        fewest: the least number of numbers in an embedded puzzle.
        most: the greatest number of numbers.
        highest: the greatest number.
        highest_target: the greatest target.
        size: the number of embedded puzzles in each split.
        data_seed: seeds the embedded puzzles.
    """

    dataset: str = "embedded"
    subset: str | None = None
    template: Layout = "reasoning"
    system: str | None = None
    pattern: str | None = None
    fewest: int = 3
    most: int = 4
    highest: int = 99
    highest_target: int = 100
    size: int = 1000
    data_seed: int = 0

    def env(self) -> gymnasium.Env[Any, Any]:
        from grpo.envs.countdown.puzzles import ask_puzzle
        from grpo.envs.text.single_turn import OneTurnEnv

        return OneTurnEnv(
            partial(ask_puzzle, where="the row given to reset", template=self._template()), partial(self.rows, "train")
        )

    def rows(self, split: str) -> Sequence[dict[str, Any]]:
        """Returns the checked rows of a split, each with the columns `question`, `numbers` and `target`.

        Embedded ones also have `answer` (an expression) and `solution` (its steps). Raises OptionError, DatasetError.
        """
        from grpo.envs.countdown.puzzles import draw_puzzle, read_puzzle
        from grpo.envs.datasets.generated import generated_split
        from grpo.envs.datasets.sources import dataset_kind, read_placed, refuse_unused
        from grpo.envs.datasets.stored import checked_rows

        self._template()
        kind = dataset_kind(self.dataset)
        refuse_unused(COUNTDOWN.options, asdict(self), _USED_BY, kind)
        if kind != "embedded":
            return checked_rows(read_placed(self.dataset, self.subset, split, kind), read_puzzle)
        fewest, most, highest, highest_target = self.fewest, self.most, self.highest, self.highest_target
        if not 2 <= fewest <= most <= _MOST_NUMBERS or highest < 2 or highest_target < 2:
            raise OptionError(
                f"countdown: fewest={fewest}, most={most}, highest={highest}, highest_target={highest_target}. Choose "
                f"2 to {_MOST_NUMBERS} numbers, the fewest not above the most, and a highest number and target of 2 or "
                "more."
            )
        sizes = {"fewest": fewest, "most": most, "highest": highest, "highest_target": highest_target}
        placed = generated_split(
            lambda draws, _: draw_puzzle(draws, **sizes),
            size=self.size,
            seed=self.data_seed,
            split=split,
            name="countdown",
        )
        return PlacedRows((where, read_puzzle(row, where)) for where, row in placed)

    def _template(self) -> Template:
        from grpo.envs.text.templates import choose_template

        known = get_args(Layout)
        if self.template not in known:
            near = did_you_mean(self.template, known)
            raise OptionError(f"no template '{self.template}'.{near} Choose one of: {', '.join(known)}.")
        return choose_template(self.template, system=self.system, pattern=self.pattern, answer="the expression alone")


COUNTDOWN = env(name="countdown", version=1, rewards=("countdown",), verifier="countdown")(Countdown)
