"""Loads a taskset of verifiers, and refuses tasks that a policy alone cannot play."""

from __future__ import annotations

import dis
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from grpo.envs.datasets.checks import refuse_size
from grpo.envs.verifiers.tools import RolloutTools, SharedTools
from grpo.plugins.errors import DatasetError, OptionError

ENDLESS = 1000  # tasks of a taskset without an end, unless the user says how many
_PLAIN = ("bash", "null")  # harnesses that a task does without


@dataclass(frozen=True, slots=True)
class Source:
    """What episodes are made of."""

    env: Any  # verifiers' environment
    agent: Any  # the configuration of its only agent, which the policy plays
    tasks: Sequence[Any]  # the tasks
    shared: SharedTools | None  # the tools that tasks of the taskset share, or None

    def tools(self, task: Any, trace: Any) -> RolloutTools:
        """Returns the tools of a rollout of a task, which the environment may have made itself."""
        shared = self.shared if isinstance(task, type(self.env.taskset).task_type()) else None
        return RolloutTools(shared, task.toolsets(task.config), trace)


def takes_turns(member: str) -> bool:
    """Returns whether the policy may have to speak more than once: there are tools, or an environment that talks."""
    from verifiers.v1 import Task, Taskset
    from verifiers.v1.utils.loaders import environment_class, task_type, taskset_class

    kinds = (task_type(member).toolsets, Task.toolsets), (taskset_class(member).toolsets, Taskset.toolsets)
    offered = any(_function(mine) is not _function(base) for mine, base in kinds)
    return offered or not _is_plain(environment_class(member))


def source_of(member: str, size: int | None, config: Mapping[str, Any]) -> Source:
    """Returns the tasks of a taskset and what plays them. Raises OptionError, DatasetError."""
    if size is not None:
        refuse_size(size, f"verifiers:{member}")
    return _source(member, size, json.dumps(dict(config), sort_keys=True))


@lru_cache(maxsize=8)
def _source(member: str, size: int | None, config: str) -> Source:
    from verifiers.v1.configs.agent import agent_config_fields
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    given = json.loads(config)
    try:
        env: Any = load_environment(resolve_env_config({"taskset": {**given, "id": member}}))
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"verifiers:{member} refuses {given or 'its defaults'}: {' '.join(str(error).split())}"
        ) from error
    agents = agent_config_fields(env.config)
    _refuse(member, "environment", _lacks_of_env(env, agents))
    taskset = env.taskset
    tasks = tuple(islice(taskset, size if size is not None or taskset.bounded else ENDLESS))
    if len(tasks) < 2:
        raise DatasetError(f"verifiers:{member} has {len(tasks)} tasks; a run needs 2 or more.")
    shared = taskset.toolsets(taskset.config)
    for task in tasks:
        _refuse(member, "tasks", _lacks(env, task, shared))
    return Source(env, next(iter(agents.values())), tasks, SharedTools(shared) if shared else None)


def _refuse(member: str, what: str, lacks: Iterator[str]) -> None:
    for lack in lacks:
        raise OptionError(
            f"verifiers:{member}: its {what} {lack}. A policy that is trained here has its messages and tools alone: "
            "run such tasks with verifiers itself."
        )


def _lacks_of_env(env: Any, agents: Mapping[str, Any]) -> Iterator[str]:
    from verifiers.v1 import Env
    from verifiers.v1.configs.env import default_agent_harness

    if len(agents) > 1:
        yield f"has several agents ({', '.join(agents)}), and all but one would need another model"
    for agent in agents.values():
        harness = agent.harness or default_agent_harness(env.config.taskset.id)
        if harness.id not in _PLAIN:
            yield f"has its agent play by the harness '{harness.id}'"
    for name in ("start", "stop"):
        if getattr(type(env), name) is not getattr(Env, name):
            yield f"brings up services of its own (in {name})"


def _lacks(env: Any, task: Any, shared: Sequence[Any]) -> Iterator[str]:
    if task.NEEDS_CONTAINER:
        yield "need a container"
    if task.data.skills:
        yield "bring skills for a harness"
    if task.data.prompt is None and _is_plain(type(env)):
        yield "have no prompt"
    for function in task.hooks("reward"):
        runtime = inspect.signature(function).parameters.get("runtime")
        if runtime is not None and runtime.default is runtime.empty:
            yield f"are scored in a runtime (by {function.__name__})"
    for function in (task.setup, task.finalize):
        if _uses(function, "runtime"):
            yield f"work in a runtime (in {function.__name__})"
    toolsets = [*shared, *task.toolsets(task.config)]
    yield from (f"have tools in another place ({lack})" for toolset in toolsets for lack in _elsewhere(toolset))
    yield from _rewriting(task, bool(toolsets))


def _elsewhere(toolset: Any) -> Iterator[str]:
    name, config = type(toolset).__name__, toolset.config
    if getattr(config, "url", None):
        yield f"{name} at {config.url}"
    if getattr(config, "colocated", False):
        yield f"{name} beside a harness"
    runtime = getattr(config, "runtime", None)
    if runtime is not None and runtime.type != "subprocess":
        yield f"{name} in a runtime of the kind {runtime.type}"


def _rewriting(task: Any, tools: bool) -> Iterator[str]:
    """Yields what a task changes or stops at a moment that does not come here, where tokens are kept as sampled."""
    from verifiers.v1 import Request, Response
    from verifiers.v1.session import hook_boundary
    from verifiers.v1.utils.decorators import discover_decorated

    for function in discover_decorated(task, "intercept"):
        if hook_boundary(function, allow_trace=False) is Response:
            yield f"rewrite what the policy said (in {function.__name__})"
        elif tools:
            yield f"rewrite calls of tools or their answers (in {function.__name__})"
    for function in task.hooks("stop") if tools else ():
        if hook_boundary(function, allow_trace=True) in (Request, Response):
            yield f"may stop between a call and its answer (in {function.__name__})"


def answered_at_once(env: Any, task: Any) -> bool:
    """Returns whether a task's own prompt is what the policy is asked first."""
    from verifiers.v1.utils.decorators import discover_decorated

    return _is_plain(type(env)) and not discover_decorated(task, "intercept")


def _is_plain(env: type) -> bool:
    """Whether the environment only has its agent answer the task's prompt."""
    from verifiers.v1.envs.single_agent import SingleAgentEnv

    return env is SingleAgentEnv


def _function(method: Any) -> Any:
    return getattr(method, "__func__", method)


def _uses(method: Callable[..., Any], name: str) -> bool:
    """Whether a method's code reads its parameter of that name; True if it has no code of its own."""
    function = inspect.unwrap(_function(method))
    if name not in inspect.signature(function).parameters:
        return False
    code = getattr(function, "__code__", None)
    if code is None:
        return True
    return any(
        instruction.opname.startswith("LOAD_") and instruction.argval == name
        for instruction in dis.get_instructions(code)
    )
