"""Provides the environment `gsm8k`: grade-school word problems whose answer is one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.envs.datasets.number_problems import Level, read_number_problems
from grpo.envs.text import TemplateName
from grpo.plugins.factory_decorators import env

if TYPE_CHECKING:
    import gymnasium

    from grpo.envs.text.templates import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Gsm8k:
    """Grade-school word problems; the answer is one number.

    Args:
        dataset: "embedded" (made-up problems, no network), a .jsonl or .parquet file, a folder with train and test
            files, or a dataset of the hub such as openai/gsm8k.
        subset: the configuration of a hub dataset or its clone; default: "main" for openai/gsm8k, else its only one.
        template: the layout asked for: reasoning (<reasoning>, <answer>), solution (<start_working_out>,
            <SOLUTION>), think (<think>, then the answer), hash (#### and the answer) or custom.
        system: a system message instead of the template's own; "" sends none.
        pattern: the layout of template=custom, with {reasoning} and {answer} in their places.
        level: the embedded problems: easy (1 step), medium (2), mixed (1 to 3) or hard (3, larger numbers).
        size: the number of embedded problems in each split.
        data_seed: seeds the embedded problems.
        question: the column with the question, in a file or hub dataset.
        answer: the column with the gold answer: a worked text ending in "#### 72", or the number alone.
    """

    dataset: str = "embedded"
    subset: str | None = None
    template: TemplateName = "reasoning"
    system: str | None = None
    pattern: str | None = None
    level: Level = "mixed"
    size: int = 1000
    data_seed: int = 0
    question: str = "question"
    answer: str = "answer"

    def env(self) -> gymnasium.Env[Any, Any]:
        from grpo.envs.text.single_turn import QuestionEnv

        return QuestionEnv(self._template(), partial(self.rows, "train"), question=self.question, answer=self.answer)

    def rows(self, split: str) -> Sequence[dict[str, Any]]:
        """Returns the rows of a split, each with the columns `question`, `answer` and `solution`, after all were
        checked.

        Raises OptionError, or DatasetError if the dataset or one of its rows (named by file and line) cannot be used.
        """
        self._template()
        return read_number_problems(split, GSM8K.options, asdict(self))

    def _template(self) -> Template:
        from grpo.envs.text.templates import choose_template

        return choose_template(self.template, system=self.system, pattern=self.pattern)


GSM8K = env(
    name="gsm8k", version=1, rewards=("proximity", "gsm8k.soft_format"), verifier="gsm8k", hub_dataset="openai/gsm8k"
)(Gsm8k)
