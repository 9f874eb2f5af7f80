"""Scores completions with all rewards of a batch at once: completions in, one outcome per reward and completion out.

A failure of a plugin is an outcome like any other: it names the plugin and the row, and it is never a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from grpo.core.score_call import Bound, Caller
from grpo.core.score_outcome import Judgement, Outcome, Result
from grpo.core.score_task import Task
from grpo.plugins.binding import BoundReward, BoundVerifier
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Completion

__all__ = ["Judgement", "Outcome", "Scorer"]


class Scorer:
    """Runs rewards and verifiers; usable from any thread, also inside a running event loop.

    Args:
        plugins: the bound rewards and verifiers, each with a name of its own.
        workers: worker processes, and so many scoring threads; default: the processors of this machine.
        retries: how often a call that failed transiently is tried again.

    Attributes:
        first_failure: plugin name to the first failure's plugin, distribution, row and traceback, as text.

    Raises:
        UsageError: two rewards or two verifiers of one name, or a count below its minimum.
    """

    def __init__(self, plugins: Sequence[Bound], *, workers: int | None = None, retries: int = 2) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"workers is {workers}; scoring needs 1 or more.")
        if retries < 0:
            raise UsageError(f"retries is {retries}; use 0 for none.")
        self.first_failure: dict[str, str] = {}
        self._rewards: dict[str, Caller] = {}
        self._verifiers: dict[str, Caller] = {}
        for plugin in plugins:
            callers = self._rewards if isinstance(plugin, BoundReward) else self._verifiers
            if plugin.name in callers:
                raise UsageError(f"two {plugin.spec.kind}s are named '{plugin.name}'. Rename one with 'as=...'.")
            callers[plugin.name] = self._caller(plugin, retries)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every worker and thread that can be ended."""

    def score(self, completions: Sequence[Completion], *, first_row: int = 0) -> dict[str, list[Outcome]]:
        """Scores completions with every reward.

        Args:
            completions: the batch.
            first_row: the number of the first completion in messages.

        Returns:
            Reward name to one outcome per completion, in order.
        """
        scored = self._run(self._rewards, completions, first_row)
        return {name: [r for r in results if isinstance(r, Outcome)] for name, results in scored.items()}

    def judge(self, completions: Sequence[Completion], *, first_row: int = 0) -> dict[str, list[Judgement]]:
        """Judges completions with every verifier; the arguments mean what they mean for `score`."""
        judged = self._run(self._verifiers, completions, first_row)
        return {name: [r for r in results if isinstance(r, Judgement)] for name, results in judged.items()}

    def _run(
        self, callers: dict[str, Caller], completions: Sequence[Completion], first_row: int
    ) -> dict[str, list[Result]]:
        tasks = {name: Task(caller, completions, first_row) for name, caller in callers.items()}
        for task in tasks.values():
            run_inline(task)
        return {name: task.results() for name, task in tasks.items()}

    def _caller(self, plugin: BoundReward | BoundVerifier, retries: int) -> Caller:
        def report(text: str) -> None:
            self.first_failure.setdefault(plugin.name, text)

        return Caller(plugin, retries=retries, report=report)


def run_inline(task: Task) -> None:
    """Runs a task in the calling thread, without a time limit."""
    if task.batch and task.indices:
        rows = [task.row(index) for index in task.indices]
        task.settle_all(task.caller.many([task.completions[index] for index in task.indices], rows))
    elif not task.batch:
        for index in task.indices:
            task.settle(index, task.caller.one(task.completions[index], task.row(index)))
