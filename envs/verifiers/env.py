"""Plays tasks of verifiers as an environment of gymnasium.

Theory of operation. An episode is a coroutine (envs/verifiers/play.py) in an event loop of its own, which runs only
while `reset`, `step` or a tool is called, until it waits for the policy again. Calls of tools come from another thread;
a lock keeps one that ran out of time from meeting the next.
"""

from __future__ import annotations

import asyncio
import resource
import selectors
import threading
from collections.abc import Coroutine, Mapping, Sequence
from functools import cache
from typing import Any

from gymnasium.error import ResetNeeded

from grpo.envs.own_numbers import OwnNumbers
from grpo.envs.text.text_env import TextEnv
from grpo.envs.verifiers.play import CUT, Line, PolicyRollout, Seat, opening
from grpo.envs.verifiers.tasks import Source, answered_at_once
from grpo.envs.verifiers.tools import Tool
from grpo.plugins.errors import DatasetError

FILES = 65536

Step = tuple[str, float, bool, bool, dict[str, Any]]


def row_of(task: Any, number: int) -> dict[str, Any]:
    """Returns the columns that rewards see: the task's data but for its defaults, and the number of the task."""
    data: dict[str, Any] = task.data.model_dump(mode="json", exclude_defaults=True)
    return {**data, "task": number}


class TaskEnv(TextEnv):
    """Plays tasks and scores what the policy said with their own rewards."""

    def __init__(self, member: str, source: Source, system: str | None, success: float) -> None:
        super().__init__()
        self._member = member
        self._source = source
        self._system = system
        self._success = success
        self._play: _Play | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of the task that a row names, or of one picked at random."""
        super().reset(seed=seed)
        self.close()
        tasks = self._source.tasks
        row = (options or {}).get("row", {"task": int(self.np_random.integers(len(tasks)))})
        number = row.get("task") if isinstance(row, Mapping) else None
        if not isinstance(number, int) or not 0 <= number < len(tasks):
            raise DatasetError(f"verifiers:{self._member}: a row needs the column task, not {row!r}.")
        task = tasks[number] if self._system is None else tasks[number].with_system_prompt(self._system or None)
        self._play = _Play(self._source, task, number)
        shown = [{"role": message.role, "content": _plain(message)} for message in self._play.opening()]
        return shown[-1]["content"], {"prompt": shown, "row": row_of(tasks[number], number)}

    @property
    def tools(self) -> list[Tool]:
        return [] if self._play is None else self._play.tools()

    def step(self, action: str) -> Step:
        """Takes what the policy said, "" where its tools ended the episode; RuntimeError where the task failed."""
        play = self._opened()
        if not isinstance(action, str):
            raise TypeError(f"the action must be the completion's text, not {type(action).__name__}.")
        return self._after(play.answer(None if play.over else action))

    def tools_used(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Takes a turn that called tools and what they answered; returns whether that ended the episode."""
        return self._opened().called(messages)

    def cut(self) -> Step:
        """Ends the episode because the policy may not speak again; what it came to is scored."""
        play = self._opened()
        play.stop()
        return self._after(play.answer(None))

    def close(self) -> None:
        if self._play is not None:
            self._play.close()
            self._play = None

    def _opened(self) -> _Play:
        if self._play is None:
            raise ResetNeeded("no episode is open: call reset() before step().")
        return self._play

    def _after(self, asked: list[Any] | None) -> Step:
        if asked is not None:
            # What an environment said may come in several messages.
            return "\n\n".join(map(_plain, asked)), 0.0, False, False, {}
        trace = self._opened().trace()
        self.close()
        rewards = {name: value.score for name, value in trace.rewards.items() if value is not None}
        figures = {name: value for name, value in trace.metrics.items() if value is not None}
        reward, cut = float(trace.reward), bool(trace.is_truncated)
        return "", reward, not cut, cut, {"scores": {**figures, **rewards}, "success": reward >= self._success}


class _Play:
    def __init__(self, source: Source, task: Any, number: int) -> None:
        self._source = source
        self._task = task
        self._number = number
        self._line = Line()
        self._seat = Seat(source.agent, source.tools, self._line)
        self._numbers = OwnNumbers()
        self._loop = asyncio.Runner(loop_factory=self._event_loop)
        self._one_at_a_time = threading.Lock()
        self._episode: asyncio.Task[None] | None = None
        self._first: list[Any] | None = None
        self.over = False

    def opening(self) -> list[Any]:
        """Returns the messages that the policy answers first."""
        if answered_at_once(self._source.env, self._task):  # and nothing runs before the policy has spoken
            return opening(self._task.data)
        return self._started()

    def tools(self) -> list[Tool]:
        self._started()
        return self._rollout().tools.tools(self._run)

    def answer(self, reply: str | None) -> list[Any] | None:
        self._started()
        self._line.answer(reply)
        asked: list[Any] | None = self._run(self._next())
        return asked

    def called(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Takes a turn with calls; returns whether it ended the episode."""
        self._started()
        self.over = not self._run(self._rollout().called(messages))
        return self.over

    def stop(self) -> None:
        self._started()
        self._rollout().trace.stop(CUT)

    def trace(self) -> Any:
        rollout = self._rollout()
        if rollout.failure is not None:
            raise rollout.failure
        return rollout.trace

    def close(self) -> None:
        with self._one_at_a_time:
            self._loop.close()

    def _started(self) -> list[Any]:
        if self._first is None:
            with self._numbers.used(self._number):
                self._first = self._run(self._begin())
            if self._first is None:
                raise RuntimeError(f"verifiers' {type(self._source.env).__name__} ended before the policy could speak")
        return self._first

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        _allow_files()
        return asyncio.SelectorEventLoop(_Waiting(self._numbers))

    def _rollout(self) -> PolicyRollout:
        if self._seat.rollout is None:
            raise RuntimeError(f"verifiers' {type(self._source.env).__name__} gave the policy no turn")
        return self._seat.rollout

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        with self._one_at_a_time:
            return self._loop.run(coroutine)

    async def _begin(self) -> list[Any] | None:
        self._episode = asyncio.create_task(self._whole())
        return await self._next()

    async def _next(self) -> list[Any] | None:
        """The new messages when the policy is asked, or None at the episode's end."""
        assert self._episode is not None
        asked = asyncio.create_task(self._line.asked())
        await asyncio.wait({asked, self._episode}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            messages: list[Any] = asked.result()
            return messages
        asked.cancel()
        self._episode.result()
        return None

    async def _whole(self) -> None:
        from verifiers.v1 import Agents, EnvInfo, Episode, TraceTask

        env, task = self._source.env, self._task
        agents = Agents(env.config, lambda name, config: self._seat)
        await env.setup(agents)
        await env.run(task, agents)
        traced = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        episode = Episode(env=EnvInfo(id=env.config.env_id), task=traced)
        episode.traces.append(self._rollout().trace)
        await env.finalize(task, episode)


class _Waiting(selectors.DefaultSelector):
    """Leaves the global random numbers to others while the event loop waits."""

    def __init__(self, numbers: OwnNumbers) -> None:
        super().__init__()
        self._numbers = numbers

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        with self._numbers.lent():
            return super().select(timeout)


@cache
def _allow_files() -> None:
    """Raises this process's limit of open files: each episode has an event loop, which takes three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _plain(message: Any) -> str:
    from verifiers.v1.types import content_text

    if not isinstance(message.content, str) and any(part.type != "text" for part in message.content or ()):
        raise TypeError("verifiers shows a picture, which cannot be shown to the policy")
    text: str = content_text(message.content)
    return text
