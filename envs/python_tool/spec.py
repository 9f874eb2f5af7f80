"""Provides the environment `python-tool`: word problems to solve with a code interpreter as a tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.envs.datasets.number_problems import Level, read_number_problems
from grpo.plugins.errors import OptionError
from grpo.plugins.factory_decorators import env

if TYPE_CHECKING:
    import gymnasium

MOST_CALLS = 7
_SYSTEM = (
    "Calculate with the tool python, which runs a program and returns what it prints. Then answer in this form:\n"
    "<answer>\nthe final number\n</answer>"
)
_PATTERN = "<answer>\n{answer}\n</answer>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonTool:
    """Word problems to solve with a code interpreter; the answer is one number.

    Args:
        dataset: "embedded" (made-up problems, no network), a .jsonl or .parquet file, a folder with train and test
            files, or a dataset of the hub such as openai/gsm8k.
        subset: the configuration of a hub dataset or its clone; default: "main" for openai/gsm8k, else its only one.
        system: a system message instead of the one that asks for the tool and <answer>; "" sends none.
        level: the embedded problems: easy (1 step), medium (2), mixed (1 to 3) or hard (3, larger numbers).
        size: the number of embedded problems in each split.
        data_seed: seeds the embedded problems.
        question: the column with the question, in a file or hub dataset.
        answer: the column with the gold answer: a worked text ending in "#### 72", or the number alone.
        calls: how many turns may call the tool, at most 7; one more is for the answer.
        sandbox: the SPEC of the sandbox that programs run in.
        seconds: of processor time that one program may use, at most 10.
        memory: in MiB, of one program.
        shown: how many characters of what a program printed the policy sees, at most 20000.
    """

    dataset: str = "embedded"
    subset: str | None = None
    system: str | None = None
    level: Level = "mixed"
    size: int = 1000
    data_seed: int = 0
    question: str = "question"
    answer: str = "answer"
    calls: int = 3
    sandbox: str = "local"
    seconds: float = 2.0
    memory: int = 512
    shown: int = 2000

    def env(self) -> gymnasium.Env[Any, Any]:
        """Returns an environment with the tool `python`. Raises OptionError, UsageError, SandboxUnavailable."""
        from grpo.envs.python_tool.interpreter import Interpreter, InterpreterEnv
        from grpo.envs.text.templates import Template
        from grpo.plugins.pools import pool_of

        self._refuse_unusable()
        pool_of(self.sandbox)
        return InterpreterEnv(
            Template(_SYSTEM if self.system is None else self.system, _PATTERN),
            partial(self.rows, "train"),
            Interpreter(self.sandbox, self.seconds, self.memory * 2**20, self.shown),
            self.calls,
            question=self.question,
            answer=self.answer,
        )

    def rows(self, split: str) -> Sequence[dict[str, Any]]:
        """Returns the checked rows of a split, those of `gsm8k`.

        Raises OptionError, or DatasetError if the dataset or one of its rows (named by file and line) cannot be used.
        """
        self._refuse_unusable()
        return read_number_problems(split, PYTHON_TOOL.options, asdict(self))

    def _refuse_unusable(self) -> None:
        for name, most in (("calls", MOST_CALLS), ("memory", 16384), ("shown", 20000)):
            if not 1 <= getattr(self, name) <= most:
                raise OptionError(f"{name}={getattr(self, name)} must be from 1 to {most}.")
        if not 0 < self.seconds <= 10:
            raise OptionError(f"seconds={self.seconds:g} must be above 0 and at most 10.")


PYTHON_TOOL = env(
    name="python-tool",
    version=1,
    rewards=("gsm8k.correctness",),
    verifier="gsm8k",
    max_turns=MOST_CALLS + 1,
    hub_dataset="openai/gsm8k",
)(PythonTool)
