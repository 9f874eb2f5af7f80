"""Scores completions with all rewards of a batch at once: one outcome per reward and completion.

Theory of operation. An async function runs on the event loop (`core/scoring/loop.py`), any other where its spec says:
in a worker process, in a thread, or inline in the calling thread, while the others run. Components of a rubric behind a
gate are a second wave (`core/scoring/rubric.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Self, TypeVar, cast

from grpo.core.scoring.call import Bound, Caller
from grpo.core.scoring.early import EarlyCalls
from grpo.core.scoring.executors import Executors, processors
from grpo.core.scoring.outcome import Judgement, Outcome, Result
from grpo.core.scoring.process_state import ProcessState
from grpo.core.scoring.rubric import Node, RubricBatch, tree
from grpo.core.scoring.task import Task
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.errors import UsageError
from grpo.plugins.rubric import RubricSpec
from grpo.plugins.types import Completion

__all__ = ["Judgement", "Outcome", "Scorer"]

T = TypeVar("T", Outcome, Judgement)

_LOOK_AFTER = 0.05


class Scorer:
    """Runs rewards and verifiers; usable from any thread, also inside a running event loop.

    `plugins`: bound, each with a name of its own. `workers`: worker processes, and a quarter of the scoring threads;
    default: the processors of this machine. `retries`: of a transient failure. `memory`: bytes of private memory for
    each worker process, 0 for any; default: half of this machine's. `first_failure`: plugin name to its first failure
    in full: plugin, distribution, row and traceback. `changed`: what plugins changed of this process, in order; it was
    put back. Raises UsageError for two rewards or two verifiers of one name, or a count below its minimum.
    """

    def __init__(
        self, plugins: Sequence[Bound], *, workers: int | None = None, retries: int = 2, memory: int | None = None
    ) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"workers is {workers}; scoring needs 1 or more.")
        if retries < 0:
            raise UsageError(f"retries is {retries}; use 0 for none.")
        self.first_failure: dict[str, str] = {}
        self.changed: dict[str, None] = {}
        self._rewards: dict[str, Caller] = {}
        self._verifiers: dict[str, Caller] = {}
        self._rubrics: dict[str, Node] = {}
        self._order: list[str] = []
        for plugin in plugins:
            parts: list[Bound] = [plugin]
            if isinstance(plugin, BoundReward):
                self._order.append(plugin.name)
                if isinstance(plugin.spec, RubricSpec):
                    self._rubrics[plugin.name] = tree(plugin)
                    parts = [node.bound for node in self._rubrics[plugin.name].nodes()]
            for part in parts:
                callers = self._rewards if isinstance(part, BoundReward) else self._verifiers
                if part.name in callers:
                    raise UsageError(f"two {part.spec.kind}s are named '{part.name}'. Rename one with 'as=...'.")
                callers[part.name] = Caller(part, retries=retries, report=partial(_keep, self.first_failure, part.name))
        self._executors = Executors(workers or processors(), memory)
        self._finalizer = weakref.finalize(self, self._executors.close)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rewards, then of the verifiers, in the order in which they were given."""
        return (*self._order, *self._verifiers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every worker and every thread that can be ended; calls that still run fail."""
        self._finalizer()

    def score(
        self,
        completions: Sequence[Completion],
        *,
        rows: Sequence[int] | None = None,
        only: Collection[str] | None = None,
        early: EarlyCalls | None = None,
    ) -> dict[str, list[Outcome]]:
        """Scores completions: reward name to one outcome per completion, in order; components follow their rubric.

        `completions`: the batch; those with one `group` are one call of a reward that scores groups. A rollout that its
        environment failed is a failure without any call, and no member of its group. `rows`: the number of each
        completion in messages; default: its index. `only`: names of the rewards and rubrics to score with; default:
        all. `early`: calls for these rows that were begun already. Raises ValueError if the scorer is closed.
        """
        numbers = range(len(completions)) if rows is None else rows
        if "error" in [completion.finish_reason for completion in completions]:
            kept, reasons = _without_failed(completions)
            some = self.score([completions[i] for i in kept], rows=[numbers[i] for i in kept], only=only, early=early)
            return {name: _spread(outcomes, kept, reasons, Outcome) for name, outcomes in some.items()}
        order = [name for name in self._order if only is None or name in only]
        roots = [self._rubrics[name] for name in order if name in self._rubrics]
        rubrics = [RubricBatch(root, numbers) for root in roots]
        plain = [name for name in order if name not in self._rubrics]
        tasks = {name: Task(self._rewards[name], completions, numbers) for name in plain}
        scored: dict[str, list[Outcome]] = {}
        for wave in range(1 + max((root.last for root in roots), default=0)):
            wanted = [rubric.wanted(wave) for rubric in rubrics]
            for name, indices in (pair for needed in wanted for pair in needed.items()):
                tasks[name] = _some(self._rewards[name], completions, numbers, indices)
            for name, results in self._run(tasks, early).items():
                scored[name] = cast(list[Outcome], results)
            for rubric, needed in zip(rubrics, wanted, strict=True):
                rubric.settle(wave, {name: (indices, scored[name]) for name, indices in needed.items()})
            tasks = {}
        for rubric in rubrics:
            scored |= rubric.outcomes()
        named: list[str] = []  # each reward; after a rubric its components
        for name in order:
            named += [node.name for node in self._rubrics[name].nodes()] if name in self._rubrics else [name]
        return {name: scored[name] for name in named}

    def early(self, group_size: int | None = None, first_row: int = 0) -> EarlyCalls:
        """Returns what begins to score the completions of one batch before all of them are there, see `score`.

        `group_size`: members of a group, with which rewards of groups begin early too. `first_row`: added to the rows
        that are begun; `score` is given the sums.
        """
        first = [name for name in self._order if name not in self._rubrics]
        for root in self._rubrics.values():
            first += [node.name for node in root.nodes() if not node.children and not node.guards]
        callers = {name: self._rewards[name] for name in first if self._executors.beside(self._rewards[name])}
        return EarlyCalls(callers, self._executors.submit, group_size, first_row)

    def judge(
        self,
        completions: Sequence[Completion],
        *,
        rows: Sequence[int] | None = None,
        only: Collection[str] | None = None,
    ) -> dict[str, list[Judgement]]:
        """Judges completions with every verifier; arguments and errors are those of `score`."""
        numbers = range(len(completions)) if rows is None else rows
        if "error" in [completion.finish_reason for completion in completions]:
            kept, reasons = _without_failed(completions)
            some = self.judge([completions[i] for i in kept], rows=[numbers[i] for i in kept], only=only)
            return {name: _spread(judgements, kept, reasons, Judgement) for name, judgements in some.items()}
        callers = {name: caller for name, caller in self._verifiers.items() if only is None or name in only}
        judged = self._run({name: Task(caller, completions, numbers) for name, caller in callers.items()})
        return cast(dict[str, list[Judgement]], judged)

    def _run(self, tasks: Mapping[str, Task], early: EarlyCalls | None = None) -> dict[str, list[Result]]:
        if not self._finalizer.alive:
            raise ValueError("this scorer is closed; make another one.")
        begun = list(early.tasks(list(tasks))) if early is not None else []
        here = any(self._executors.shares_process(task.caller) for task in tasks.values())
        state = ProcessState() if here else None
        try:
            if early is not None:
                for name, task in tasks.items():
                    task.leave_out(early.rows(name))
            inline = [task for task in tasks.values() if not self._executors.submit(task)]
            for task in inline:
                _run_inline(task)
            for task in begun:
                self._await(task)
            if early is not None:
                for name, task in tasks.items():
                    early.settle(name, task)
            for task in tasks.values():
                self._await(task)
        except BaseException:
            for task in (*begun, *tasks.values()):
                task.fail_open("scoring was interrupted.")
            raise
        finally:
            if state is not None:
                self.changed |= dict.fromkeys(state.put_back())
        return {name: task.results() for name, task in tasks.items()}

    def _await(self, task: Task) -> None:
        while not task.wait(_LOOK_AFTER):
            self._executors.check()


def _without_failed(completions: Sequence[Completion]) -> tuple[list[int], dict[int, str]]:
    reasons = {
        index: str(completion.info.get("failure", "the rollout failed"))
        for index, completion in enumerate(completions)
        if completion.finish_reason == "error"
    }
    return [index for index in range(len(completions)) if index not in reasons], reasons


def _spread(results: Sequence[T], kept: Sequence[int], reasons: Mapping[int, str], kind: type[T]) -> list[T]:
    by_index = dict(zip(kept, results, strict=True))
    places = range(len(kept) + len(reasons))
    return [by_index[i] if i in by_index else kind("failure", reason=reasons[i]) for i in places]


def _some(caller: Caller, completions: Sequence[Completion], rows: Sequence[int], indices: Sequence[int]) -> Task:
    if len(indices) == len(completions):
        return Task(caller, completions, rows)
    return Task(caller, [completions[index] for index in indices], [rows[index] for index in indices])


def _run_inline(task: Task) -> None:
    call = task.caller.many if task.together else task.caller.each
    calls = task.calls() if task.together else [task.indices]
    for indices in filter(len, calls):
        task.settle(indices, call(task.some(indices), task.rows(indices)))


def _keep(failures: dict[str, str], name: str, text: str, error: BaseException | None) -> None:
    failures.setdefault(name, text)
