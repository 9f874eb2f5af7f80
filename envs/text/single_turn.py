"""Defines environments of one question and one completion, which the run's rewards score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from grpo.envs.datasets.problem import read_problem
from grpo.envs.text.templates import Template
from grpo.envs.text.text_env import TextEnv


@dataclass(frozen=True, slots=True)
class Asked:
    """What an episode shows."""

    question: str  # the text to answer
    row: Mapping[str, Any]  # the columns that rewards and verifiers read
    system: str = ""  # a system message; "" for none
    demonstration: str = ""  # a worked answer, or ""
    gold: str = ""  # a right answer without working, or ""
    # the whole prompt, where it is more than a system message and the question
    messages: Sequence[Mapping[str, Any]] = ()


class OneTurnEnv(TextEnv):
    """Asks one question; any text answers it.

    `ask`: makes a row into what is shown; raises `DatasetError` for a bad row. `rows`: the rows to pick from when
    `reset` is given none; called at most once, when first needed.
    """

    def __init__(self, ask: Callable[[object], Asked], rows: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        super().__init__()
        self._ask = ask
        self._rows = cache(rows)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of `options["row"]`, else of a random row. Raises DatasetError: the rows cannot be used.

        Returns the question, and `info` with `prompt` (chat messages), `row` (columns for rewards) and `demonstration`
        for a row with a worked answer, or `gold` for one with an answer alone.
        """
        super().reset(seed=seed)
        if options and "row" in options:
            asked = self._ask(options["row"])
        else:
            rows = self._rows()
            asked = self._ask(rows[int(self.np_random.integers(len(rows)))])
        self._open = True
        system = [{"role": "system", "content": asked.system}] if asked.system else []
        info: dict[str, Any] = {
            "prompt": list(asked.messages) or [*system, {"role": "user", "content": asked.question}],
            "row": dict(asked.row),
        }
        if asked.demonstration:
            info["demonstration"] = asked.demonstration
        if asked.gold:
            info["gold"] = asked.gold
        return asked.question, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes the completion and ends the episode, unscored."""
        self._checked(action)
        self._open = False
        return "", 0.0, True, False, {}


class QuestionEnv(OneTurnEnv):
    """Asks a question with one right answer, in the layout of `template`."""

    def __init__(
        self,
        template: Template,
        rows: Callable[[], Sequence[Mapping[str, Any]]],
        *,
        question: str = "question",
        answer: str = "answer",
    ) -> None:
        super().__init__(self._asked, rows)
        self._template = template
        self._columns = {"question": question, "answer": answer}

    def _asked(self, row: Any) -> Asked:
        names = dict(self._columns)
        if isinstance(row, Mapping):
            names = {usual: name if name in row else usual for usual, name in names.items()}
        problem = read_problem(row, "the row given to reset", **names)
        answered = self._template.render(problem.reasoning or problem.answer, problem.answer)
        worked, gold = (answered, "") if problem.reasoning else ("", answered)
        return Asked(problem.question, problem.row(), self._template.system, worked, gold)
