"""Starts calls of rewards before their batch is complete.

Theory of operation. A completion that has ended goes to the rewards of one completion that run beside the caller; a
group goes to its rewards when all members have ended. The scorer takes these results by row and calls batch rewards,
components behind a gate and inline rewards later. So outcomes are the same in whatever order completions end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from grpo.core.scoring.call import Caller
from grpo.core.scoring.task import Task
from grpo.plugins.types import Completion


def nothing_begun() -> EarlyCalls:
    """Returns the calls for a batch whose scoring has yet to begin."""
    return EarlyCalls({}, lambda task: None)


class EarlyCalls:
    """The calls for one batch that were begun before it was complete.

    `submit`: passes a task to its executor. `group_size`: members of a group; None: rewards of groups wait for the
    whole batch. `first_row`: this process's first completion in the batch of all processes, for messages.
    """

    def __init__(
        self,
        callers: Mapping[str, Caller],
        submit: Callable[[Task], object],
        group_size: int | None = None,
        first_row: int = 0,
    ) -> None:
        self._callers = callers
        self._submit = submit
        self._group_size = group_size
        self._first_row = first_row
        self._groups: dict[int, list[tuple[int, Completion]]] = {}
        self._tasks: dict[str, list[tuple[Sequence[int], Task]]] = {name: [] for name in callers}

    def begin(self, rows: Sequence[int], completions: Sequence[Completion]) -> None:
        """Begins to score completions that have ended, but for those that their environment failed."""
        ended = [(self._first_row + row, completion) for row, completion in zip(rows, completions, strict=True)]
        whole = self._completed_by(ended) if any(caller.plugin.grouped for caller in self._callers.values()) else []
        for name, caller in self._callers.items():
            called = whole if caller.plugin.grouped else ended
            own = [
                (row, completion)
                for row, completion in called
                if completion.finish_reason != "error" and caller.plugin.env in ("", completion.env)
            ]
            if own:
                numbers = [row for row, _ in own]
                task = Task(caller, [completion for _, completion in own], numbers)
                self._tasks[name].append((numbers, task))
                self._submit(task)

    def _completed_by(self, ended: Sequence[tuple[int, Completion]]) -> list[tuple[int, Completion]]:
        """Keeps completions by group; returns all of the groups that they complete, with their rows, in order."""
        whole: list[tuple[int, Completion]] = []
        for row, completion in ended:
            if completion.group is not None:
                members = self._groups.setdefault(completion.group, [])
                members.append((row, completion))
                if len(members) == self._group_size:
                    whole += self._groups.pop(completion.group)
        return sorted(whole, key=lambda pair: pair[0])

    def rows(self, name: str) -> set[int]:
        return {row for rows, _ in self._tasks.get(name, ()) for row in rows}

    def waiting(self) -> int:
        """Returns how many completions still wait for a score that was begun."""
        return len(
            {
                row
                for tasks in self._tasks.values()
                for rows, task in tasks
                for index, row in enumerate(rows)
                if task.open(index)
            }
        )

    def tasks(self, names: Sequence[str]) -> Iterator[Task]:
        """Yields the tasks of some rewards, which all have to be waited for."""
        for name in names:
            for _, task in self._tasks.get(name, ()):
                yield task

    def settle(self, name: str, whole: Task) -> None:
        """Enters the results of a reward into the task of the whole batch; all of them must have come."""
        places = {whole.row(index): index for index in range(len(whole.completions))}
        for begun, task in self._tasks.get(name, ()):
            known = [(places[row], result) for row, result in zip(begun, task.results(), strict=True) if row in places]
            whole.settle([place for place, _ in known], [result for _, result in known])

    def drop(self) -> None:
        """Drops the batch: calls that wait are not made, and what others return is not read."""
        for task in self.tasks(list(self._tasks)):
            task.abandon()
