"""The gymnasium environment of one question and one answer.

In: a dataset row (or none: the environment then picks one). Out: the question as the observation, the chat prompt
and the columns for rewards in `info`; the policy's completion is the action and ends the episode. The environment
scores nothing itself: `step` returns 0.0, and the run's rewards score the completion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from grpo.envs.problem import Problem, read_problem
from grpo.envs.spaces import AnyText
from grpo.envs.templates import Template


class QuestionEnv(gymnasium.Env[str, str]):
    """Asks one question; any text answers it.

    Args:
        template: the layout that the system message asks for and demonstrations have.
        rows: returns the rows to pick from when `reset` is given none; called at most once, when first needed.
        question: the column with the question.
        answer: the column with the gold answer.
    """

    def __init__(
        self,
        template: Template,
        rows: Callable[[], Sequence[Mapping[str, Any]]],
        *,
        question: str = "question",
        answer: str = "answer",
    ) -> None:
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._template = template
        self._read_rows = rows
        self._rows: Sequence[Mapping[str, Any]] | None = None
        self._columns = {"question": question, "answer": answer}
        self._asked = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of one row.

        Args:
            seed: seeds the choice of a row.
            options: `{"row": row}` names the row; without it one is picked at random.

        Returns:
            The question, and `info` with `prompt` (chat messages), `row` (the columns `question`, `answer`,
            `solution` and the row's others) and, for a row with worked steps, `demonstration`.

        Raises:
            DatasetError: the row, or the dataset to pick one from, cannot be used.
        """
        super().reset(seed=seed)
        row = options["row"] if options and "row" in options else self._pick()
        problem = self._problem(row)
        self._asked = True
        info: dict[str, Any] = {"prompt": self._prompt(problem), "row": problem.row()}
        if problem.reasoning:
            info["demonstration"] = self._template.render(problem.reasoning, problem.answer)
        return problem.question, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes the completion and ends the episode, unscored.

        Raises:
            ResetNeeded: no question is open.
            TypeError: the action is not text.
        """
        if not self._asked:
            raise ResetNeeded("no question is open: call reset() before each step().")
        if not isinstance(action, str):
            raise TypeError(f"the action must be the completion's text, not {type(action).__name__}.")
        self._asked = False
        return "", 0.0, True, False, {}

    def _pick(self) -> Mapping[str, Any]:
        if self._rows is None:
            self._rows = self._read_rows()
        return self._rows[int(self.np_random.integers(len(self._rows)))]

    def _problem(self, row: Any) -> Problem:
        names = dict(self._columns)
        if isinstance(row, Mapping):
            names = {usual: name if name in row else usual for usual, name in names.items()}
        return read_problem(row, "the row given to reset", **names)

    def _prompt(self, problem: Problem) -> list[dict[str, str]]:
        system = [{"role": "system", "content": self._template.system}] if self._template.system else []
        return [*system, {"role": "user", "content": problem.question}]
