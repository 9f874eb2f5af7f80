"""Provides `@agent`, which turns a function that plays an episode into a callable spec and keeps its types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args
from typing import Protocol as Typed

from grpo.plugins._spec.signature import name_of_function, options_after, resolved_hints
from grpo.plugins.agents import AgentCall, Answer, Command, Protocol
from grpo.plugins.decorators import refuse_faults, refuse_positional
from grpo.plugins.specs import AgentFunction, AgentSpec, Parameters

_Played = TypeVar("_Played")


class AgentDecorator(Typed):
    """Makes an agent of a function that returns a command, or plays the episode itself."""

    def __call__(self, function: Callable[Parameters, _Played], /) -> AgentFunction[Parameters, _Played]: ...


def agent(
    *misplaced: object,
    version: int = 0,
    name: str | None = None,
    protocols: Sequence[Protocol] = ("chat",),
    environment: Mapping[str, str] | None = None,
    answer: Answer = "message",
    programs: Mapping[str, str] | None = None,
    modules: Mapping[str, str] | None = None,
    auxiliary: Callable[[AgentCall], bool] | None = None,
    prepare: Callable[..., None] | None = None,
) -> AgentDecorator:
    """Makes an agent of a function `(task: AgentTask, access: Access, *, options)`.

    A function that is annotated to return a `Command` says which program to start. Any other function, plain or async,
    is a Python agent: it plays the episode itself, in a process of its own, and returns its answer or None.

    Args:
        version: raise it when the behaviour of the agent changes. It may be left out in a file, not in a package.
        name: the public name; default: the function's.
        protocols: the APIs that it may call: "chat", "responses", "messages".
        environment: variables that every episode sets, beside those that every agent has.
        answer: of a command: "message", the policy's last message, or "stdout", what the program writes.
        programs: the programs that it needs, each with a sentence that says how to install it.
        modules: the Python modules that it needs, each with a sentence that says how to install it. Those of a Python
            agent are imported once, before the first episode.
        auxiliary: says whether a call is no part of the task, such as one for a title or a summary. Such calls are
            answered and recorded, and train only with `rollout.agent_trains = "all"`. Without it, calls without tools
            beside a conversation that has some are taken for such.
        prepare: called with the options as keywords before anything is loaded; raises a `UsageError` where the agent
            cannot work with them.

    Raises:
        SpecError: the signature or the metadata is not allowed.

    Example:
        >>> from grpo import Access, AgentTask, Command, agent
        >>> @agent(version=1, programs={"aider": "Install it with: pip install aider-chat"})
        ... def aider(task: AgentTask, access: Access, *, stream: bool = False) -> Command:
        ...     "Plays with aider, which edits files."
        ...     flags = ["--model", f"openai/{access.model}", "--no-git", "--yes"]
        ...     return Command(["aider", *flags, "--stream" if stream else "--no-stream", "--message", task.text])
        >>> aider(AgentTask("Add a test."), Access("http://127.0.0.1:1", "k", "policy")).argv[-1]
        'Add a test.'
    """
    refuse_positional("agent", misplaced)

    def decorate(function: Callable[Parameters, _Played], /) -> AgentFunction[Parameters, _Played]:
        returned = resolved_hints(function).get("return")
        spec: AgentFunction[Parameters, _Played] = AgentFunction(
            name=name or name_of_function(function),
            version=version,
            function=function,
            doc=inspect.getdoc(function) or "",
            options=options_after(function, "task", "access"),
            command=returned in (Command, "Command") and not inspect.iscoroutinefunction(function),
            protocols=protocols if isinstance(protocols, str) else tuple(protocols),  # type: ignore[arg-type]
            environment=environment or {},
            answer=answer,
            programs=programs or {},
            modules=modules or {},
            auxiliary=auxiliary,
            prepare=prepare,
        )
        refuse_faults(spec)
        return spec

    return decorate


def agent_of(function: Callable[..., Any], *, name: str) -> AgentSpec:
    """Returns the agent that a plain function of a file is, which may call any API. Raises SpecError."""
    return agent(name=name, protocols=get_args(Protocol))(function)
