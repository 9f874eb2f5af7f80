"""Provides the environment `arithmetic`: calculations that may get harder from the first row to the last."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from grpo.envs.text import TemplateName
from grpo.plugins.errors import OptionError, did_you_mean
from grpo.plugins.factory_decorators import env
from grpo.plugins.placed_rows import PlacedRows

if TYPE_CHECKING:
    import gymnasium

    from grpo.envs.datasets.draws import Draws
    from grpo.envs.text.templates import Template

Schedule = Literal["mixed", "rising"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """Calculations with whole numbers, of five levels of difficulty.

    Levels: 1 adds digits, 2 adds or takes away up to 99, 3 multiplies up to 12 or adds up to 999, 4 takes two steps,
    5 three and brackets. The rows are made up by a seed; a level with few questions repeats some.

    Args:
        lowest: the easiest level.
        highest: the hardest level.
        schedule: mixed (every level anywhere) or rising (from the easiest to the hardest, over the whole run).
        template: the layout asked for: reasoning, solution, think, hash or custom, as for gsm8k.
        system: a system message instead of the template's own; "" sends none.
        pattern: the layout of template=custom, with {reasoning} and {answer} in their places.
        size: the number of rows in each split.
        data_seed: seeds the rows.
    """

    lowest: int = 1
    highest: int = 5
    schedule: Schedule = "mixed"
    template: TemplateName = "reasoning"
    system: str | None = None
    pattern: str | None = None
    size: int = 1000
    data_seed: int = 0

    def env(self) -> gymnasium.Env[Any, Any]:
        from grpo.envs.text.single_turn import QuestionEnv

        return QuestionEnv(self._template(), partial(self.rows, "train"))

    def rows(self, split: str) -> list[dict[str, Any]]:
        """Returns the rows of a split, each with the columns `question`, `answer`, `solution` and `level`.

        The test split is always mixed, so that its first rows are a fair sample. Raises OptionError, DatasetError.
        """
        from grpo.envs.arithmetic.problems import LEVELS, draw_problem
        from grpo.envs.datasets.generated import generated_split
        from grpo.envs.datasets.problem import read_problem

        self._template()
        lowest, highest = self.lowest, self.highest
        if not LEVELS[0] <= lowest <= highest <= LEVELS[-1]:
            raise OptionError(
                f"arithmetic: lowest={lowest}, highest={highest}. Choose levels from {LEVELS[0]} to {LEVELS[-1]}, the "
                "lowest not above the highest."
            )
        if self.schedule not in (known := get_args(Schedule)):
            near = did_you_mean(self.schedule, known)
            raise OptionError(f"no schedule '{self.schedule}'.{near} Choose one of: {', '.join(known)}.")
        rising = self.ordered and split == "train"

        def draw(draws: Draws, progress: float) -> dict[str, Any]:
            level = lowest + int(progress * (highest - lowest + 1)) if rising else draws.whole(lowest, highest)
            return draw_problem(draws, level)

        placed = generated_split(draw, size=self.size, seed=self.data_seed, split=split, name="arithmetic")
        return PlacedRows((where, read_problem(row, where).row()) for where, row in placed)

    @property
    def ordered(self) -> bool:
        """Whether the rows get harder, and are to be trained on in their order."""
        return self.schedule == "rising"

    def _template(self) -> Template:
        from grpo.envs.text.templates import choose_template

        return choose_template(self.template, system=self.system, pattern=self.pattern)


ARITHMETIC = env(name="arithmetic", version=1, rewards=("arithmetic",), verifier="gsm8k")(Arithmetic)
