"""Tasks of verifiers as an environment: a taskset in, prompts and the tasks' own rewards out.

A completion becomes a trace with one reply, and the task scores it as it would offline, without a runtime.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from grpo.envs.single_turn import Asked, OneTurnEnv
from grpo.plugins.errors import DatasetError, OptionError

ENDLESS = 1000  # tasks of a taskset without an end, unless the user says how many


def config_class(member: str) -> Any:
    """Returns the class of a taskset's settings; raises what verifiers raises for an id that is none."""
    from verifiers.v1.configs.taskset import TasksetConfig
    from verifiers.v1.utils.generic import concrete_type
    from verifiers.v1.utils.loaders import taskset_class

    return concrete_type(taskset_class(member), TasksetConfig) or TasksetConfig


def tasks_of(member: str, size: int | None, config: Mapping[str, Any]) -> Sequence[Any]:
    """Returns the tasks of a taskset.

    Raises:
        OptionError: they need tools or a container, or the taskset refuses its settings.
        DatasetError: it has fewer than two.
    """
    return _tasks(member, size, json.dumps(dict(config), sort_keys=True))


@lru_cache(maxsize=8)
def _tasks(member: str, size: int | None, config: str) -> Sequence[Any]:
    from verifiers.v1.utils.loaders import load_taskset

    given = json.loads(config)
    try:
        taskset: Any = load_taskset(config_class(member).model_validate({**given, "id": member}))
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"verifiers:{member} refuses {given or 'its defaults'}: {' '.join(str(error).split())}"
        ) from error
    tasks = tuple(islice(taskset, size if size is not None or taskset.bounded else ENDLESS))
    if len(tasks) < 2:
        raise DatasetError(f"verifiers:{member} has {len(tasks)} tasks; a run needs 2 or more.")
    for task in tasks:
        lack = _lack(task)
        if lack:
            raise OptionError(
                f"verifiers:{member}: its tasks {lack}, which one message does not have. Run such tasks "
                "with verifiers itself."
            )
    return tasks


def _lack(task: Any) -> str:
    """Says what a task needs that a message alone does not have, or ""."""
    if task.NEEDS_CONTAINER:
        return "need a container"
    if task.toolsets(task.config):
        return "bring tools"
    if task.data.prompt is None:
        return "have no prompt"
    for function in task.hooks("reward"):
        runtime = inspect.signature(function).parameters.get("runtime")
        if runtime is not None and runtime.default is runtime.empty:
            return f"are scored in a runtime (by {function.__name__})"
    return ""


def row_of(task: Any, number: int) -> dict[str, Any]:
    """Returns the columns that rewards see: the task's data but for its defaults, and the number of the task."""
    data: dict[str, Any] = task.data.model_dump(mode="json", exclude_defaults=True)
    return {**data, "task": number}


class TaskEnv(OneTurnEnv):
    """Asks tasks and scores the replies with their own rewards.

    Args:
        member: the taskset.
        tasks: its tasks.
        system: a system message instead of the tasks' own, or None.
        success: the least reward of a task that is solved.
    """

    def __init__(self, member: str, tasks: Sequence[Any], system: str | None, success: float) -> None:
        super().__init__(self._asked, lambda: [{"task": number} for number in range(len(tasks))])
        self._member = member
        self._tasks = tasks
        self._system = system
        self._success = success
        self._task: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of a task; a prompt of several messages is kept as it is."""
        shown, info = super().reset(seed=seed, options=options)
        if not isinstance(self._task.data.prompt, str):
            system = [message for message in info["prompt"] if message["role"] == "system"]
            info["prompt"] = [*system, *_messages(self._task.data.prompt)]
        return shown, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Scores the completion and ends the episode; raises what `OneTurnEnv.step` and the task raise."""
        shown, _, ended, cut, _ = super().step(action)
        trace = asyncio.run(scored(self._task, action))
        rewards = {name: found.score for name, found in trace.rewards.items() if found is not None}
        figures = {name: value for name, value in trace.metrics.items() if value is not None}
        reward = float(trace.reward)
        return shown, reward, ended, cut, {"scores": {**figures, **rewards}, "success": reward >= self._success}

    def _asked(self, row: Any) -> Asked:
        number = row.get("task") if isinstance(row, Mapping) else None
        if not isinstance(number, int) or not 0 <= number < len(self._tasks):
            raise DatasetError(f"verifiers:{self._member}: a row needs the column task, not {row!r}.")
        self._task = self._tasks[number]
        data = self._task.data
        system = (data.system_prompt or "") if self._system is None else self._system
        return Asked(data.prompt_text, row_of(self._task, number), system)


async def scored(task: Any, reply: str) -> Any:
    """Returns the trace of a task and one reply, scored by the task."""
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import AgentInfo, TraceTask
    from verifiers.v1.types import AssistantMessage, SystemMessage, UserMessage

    prompt = task.data.prompt
    asked = [UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt)
    system = [SystemMessage(content=task.data.system_prompt)] if task.data.system_prompt else []
    nodes = [
        MessageNode(message=message, parent=number - 1 if number else None)
        for number, message in enumerate([*system, *asked])
    ]
    nodes.append(MessageNode(message=AssistantMessage(content=reply), parent=len(nodes) - 1, sampled=True))
    trace = vf.Trace(
        task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=AgentInfo(config=vf.AgentConfig()),
        nodes=nodes,
        is_completed=True,
        ok=True,
    )
    await task.score(trace)
    return trace


def _messages(prompt: Sequence[Any]) -> list[dict[str, str]]:
    from verifiers.v1.types import content_text

    return [{"role": message.role, "content": content_text(message.content)} for message in prompt]
