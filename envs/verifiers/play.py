"""Plays a task of verifiers with the policy in place of its harness, as verifiers' own rollout does.

Theory of operation. `Env.run(task, agents)` has an agent answer a task, or talks with it. Here the agent is a `Seat`;
what it is to answer goes into a `Line`, where the coroutine waits for the answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from grpo.envs.verifiers.tools import RolloutTools

CUT = "max_turns"  # verifiers' name for a rollout that a budget ended
Tools = Callable[[Any, Any], RolloutTools]
_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens")


class Line:
    """Where a rollout waits for the policy."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[list[Any]] = asyncio.Queue()
        self._answer: asyncio.Future[str | None] | None = None

    async def ask(self, messages: list[Any]) -> str | None:
        """Returns the policy's answer to new messages, or None where there is none."""
        self._answer = asyncio.get_running_loop().create_future()
        self._asked.put_nowait(messages)
        return await self._answer

    async def asked(self) -> list[Any]:
        """Waits for messages to answer and returns them."""
        return await self._asked.get()

    def answer(self, reply: str | None) -> None:
        """Gives the answer; None where the rollout is over."""
        assert self._answer is not None
        self._answer.set_result(reply)


class PolicyRollout:
    """One rollout of a task that the policy answers over `line`, with what verifiers' `Interaction` asks of it."""

    def __init__(self, task: Any, config: Any, tools: Tools, line: Line) -> None:
        from verifiers.v1 import AgentInfo, Request, Response, Trace, TraceTask
        from verifiers.v1.session import RolloutLimits, RolloutSession, hook_boundary
        from verifiers.v1.state import state_cls
        from verifiers.v1.utils.decorators import discover_decorated

        self.trace: Any = Trace(
            task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            state=state_cls(type(task))(),
            agent=AgentInfo(config=config),
        )
        self.tools = tools(task, self.trace)
        self.failure: Exception | None = None
        self.closed = False
        self._task = task
        self._line = line
        stops = [(hook_boundary(stop, allow_trace=True), stop) for stop in task.hooks("stop")]
        self._session = RolloutSession(
            ctx=None,  # of the served model, which is not asked
            trace=self.trace,
            limits=RolloutLimits(**{name: getattr(config, name) for name in _LIMITS}),
            trace_stops=[stop for kind, stop in stops if kind is Trace],
            request_stops=[stop for kind, stop in stops if kind is Request],
            response_stops=[stop for kind, stop in stops if kind is Response],
            request_interceptors=discover_decorated(task, "intercept"),
        )
        self._history: list[Any] = []
        self._pending: list[Any] = []
        self._began = 0.0

    @property
    def ok(self) -> bool:
        return self.failure is None and self.trace.stop_condition is None

    async def open(self) -> None:
        """Sets up the task and its tools, and opens the conversation with the task's prompt, where it has one."""
        from verifiers.v1 import Tool
        from verifiers.v1.utils.decorators import invoke

        await invoke(self._task.setup, {"trace": self.trace, "runtime": None})
        await self.tools.open()
        self.trace.tools = [Tool(**schema["function"]) for schema in self.tools.schemas]
        self._pending = opening(self._task.data)

    async def step(self, messages: Sequence[Any] | None = None, *, on_input: Any = None) -> bool:
        """Plays one segment: the policy speaks until it asks for no tools; returns whether it can go on."""
        from verifiers.v1 import AssistantMessage

        if self.closed or not self.ok:
            return False
        self._pending += messages or ()
        if not await self.may_speak():
            return False
        if on_input is not None:
            on_input()
        reply = await self._line.ask(list(self._pending))
        if reply is not None:
            await self._answered(AssistantMessage(content=_encodable(reply)), "stop")
        return self.ok

    async def may_speak(self) -> bool:
        """Returns whether the policy may answer what is pending; limits, stops and interceptors decide, as they do."""
        from verifiers.v1 import Request

        if await self._session.refused():
            return False
        asked = Request(messages=[*self._history, *self._pending], tools=self.trace.tools or None)
        request, records, stopped = await self._session.rewrite_request(asked)
        self.trace.request_rewrites.extend(records)
        self._pending = list(request.messages[len(self._history) :])
        self._began = time.time()
        if stopped is not None:
            self.trace.stop(stopped)
        return stopped is None

    async def called(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Takes a turn that asked for tools, and what they answered; returns whether the policy may go on."""
        from verifiers.v1 import AssistantMessage, ToolCall, ToolMessage

        asked, *answers = messages
        number = self.trace.num_turns
        calls = []
        for place, call in enumerate(asked["tool_calls"]):
            name, arguments = call["function"]["name"], json.dumps(call["function"]["arguments"], ensure_ascii=False)
            calls.append(ToolCall(id=f"call_{number}_{place}", name=_encodable(name), arguments=_encodable(arguments)))
        text = _encodable(asked["content"]) or None
        await self._answered(AssistantMessage(content=text, tool_calls=calls), "tool_calls")
        pairs = zip(calls, answers, strict=True)
        self._pending = [ToolMessage(tool_call_id=c.id, name=c.name, content=answer["content"]) for c, answer in pairs]
        return self.ok and await self.may_speak()

    async def _answered(self, message: Any, reason: Any) -> None:
        from verifiers.v1 import ModelCall, Response, TimeSpan, graph

        made = {"id": "policy", "model": "policy", "created": int(self._began)}
        response = Response(message=message, finish_reason=reason, **made)
        _, _, stopped = await self._session.rewrite_response(response)  # stops look at it; none may rewrite it here
        prompt = [*self._history, *self._pending]
        node = graph.prepare_turn(self.trace, prompt, self.trace.tools or None).commit(response)
        span = TimeSpan(start=self._began, end=time.time())
        self.trace.calls.append(ModelCall(node=node, model="policy", finish_reason=reason, time=span))
        self._history, self._pending = [*prompt, message], []
        if stopped is not None:
            self.trace.stop(stopped)

    def fail(self, error: Exception) -> None:
        self.failure = error
        self.trace.record_error(error)

    async def close(self) -> Any:
        """Ends it: the task finalises and scores the trace, unless something failed."""
        from verifiers.v1.utils.decorators import invoke

        if self.closed:
            return self.trace
        self.closed = True
        try:
            await self.tools.close()
            if self.failure is None:
                await invoke(self._task.finalize, {"trace": self.trace, "runtime": None})
                await self._task.score(self.trace)
        except Exception as error:
            self.fail(error)
        self.trace.is_completed = True
        self.trace.ok = self.failure is None
        return self.trace

    async def abandon(self) -> None:
        self.closed = True
        await self.tools.close()


class Seat:
    """The agent that the policy plays over `line`; an environment may set `trainable`, which changes nothing."""

    def __init__(self, config: Any, tools: Tools, line: Line) -> None:
        self.config = config
        self.rollout: PolicyRollout | None = None
        self.trainable = True
        self._tools = tools
        self._line = line

    async def run(self, task: Any, **placed: Any) -> Any:
        """Has the policy answer a task and returns the trace."""
        async with self.interaction(task, **placed) as talk:
            await talk.turn()
            rollout = self.rollout
            assert rollout is not None
            if rollout.ok:
                rollout.trace.stop("agent_completed")
        return rollout.trace

    @asynccontextmanager
    async def interaction(self, task: Any, **placed: Any) -> AsyncIterator[Any]:
        """Holds a conversation with the policy open, turn by turn. Raises RuntimeError: the environment opens two, or
        its own."""
        from verifiers.v1 import Interaction

        if self.rollout is not None:
            raise RuntimeError("its environment has the policy play several rollouts in one episode")
        for name, value in placed.items():
            if value:
                raise RuntimeError(f"its environment gives the rollout of the policy a {name} of its own")
        rollout = self.rollout = PolicyRollout(task, self.config, self._tools, self._line)
        await rollout.open()
        talk = Interaction(rollout)  # it has what is asked of a rollout here
        try:
            yield talk
        except Exception as error:
            rollout.fail(error)
            raise
        except BaseException:
            await rollout.abandon()
            raise
        finally:
            if not rollout.closed:
                await talk.close()


def opening(data: Any) -> list[Any]:
    """Returns the messages that a task begins with: its system message and its prompt, as far as it has them."""
    from verifiers.v1 import SystemMessage, UserMessage

    system = [SystemMessage(content=data.system_prompt)] if data.system_prompt else []
    return [*system, *([UserMessage(content=data.prompt)] if isinstance(data.prompt, str) else data.prompt or ())]


def _encodable(text: str) -> str:
    """Replaces lone surrogates, which the arguments of a call may spell out."""
    return text.encode("utf-8", "replace").decode("utf-8")
