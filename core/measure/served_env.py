"""Plays the episodes of an environment for a client, one at a time, and scores each when it is over.

A client is told the task, calls the environment's tools and submits texts, which are the turns of a policy. `serve`
offers that as an MCP server over standard input and output, with the tools `reset`, which begins a task, and `submit`,
which answers it or makes a move. One process serves one client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpo
from grpo.core.check.gold.solutions import answered, completion_of
from grpo.core.env.episodes import Action, Episode
from grpo.core.env.processes import place_of_envs, trial_processes
from grpo.core.env.step import StepAnswer, cut_off
from grpo.core.env.threads import Raised
from grpo.core.env.tools import Schema
from grpo.core.env.worked import Worked, play_turn
from grpo.core.scoring.outcome import Outcome, explain
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundEnv, BoundReward, BoundVerifier
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Completion


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a client; `data` has `score` (a number, or None), `rewards`, `correct` once the episode is over."""

    text: str
    error: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)


class ServedEnv:
    """An environment for one client; use it as a context manager. `seconds`: for one call of the environment."""

    def __init__(
        self,
        env: BoundEnv,
        episodes: Sequence[Episode],
        rewards: Sequence[BoundReward],
        verifier: BoundVerifier | None,
        seconds: float,
    ) -> None:
        self._env, self._episodes, self._rewards, self._verifier = env, episodes, rewards, verifier
        self._open = ExitStack()
        self._envs = self._open.enter_context(place_of_envs(env, trial_processes(env, 0), seconds))
        self._scorer = self._open.enter_context(Scorer([*rewards, *([verifier] if verifier else [])]))
        self._number = -1  # of the episode, as every start is counted
        self._next = 0
        self._episode: Episode | None = None
        self._worked = Worked()

    def __enter__(self) -> ServedEnv:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """The tools of the environment, as chat templates take them."""
        return self._episodes[0].tools

    def reset(self, index: int | None = None) -> Answer:
        """Begins a task: that of a row, or the next one. A task that was not ended is dropped without a score."""
        index = self._next if index is None else index
        if not 0 <= index < len(self._episodes):
            return Answer(
                f"there is no task {index}: they are numbered from 0 to {len(self._episodes) - 1}", error=True
            )
        self._give_up()
        self._next = (index + 1) % len(self._episodes)
        self._number += 1
        episode, self._worked = self._episodes[index], Worked()
        if self._env.spec.played:
            started = self._envs.start({self._number: episode})[self._number]
            if isinstance(started, Raised):
                return Answer(f"the task could not start: {explain(started.error)}", error=True)
            self._worked.tools = started
        self._episode = episode
        return Answer("\n\n".join(str(message["content"]) for message in episode.prompt))

    def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Calls a tool of the environment."""
        return self._played({"tool": name, "arguments": dict(arguments)})

    def submit(self, text: str) -> Answer:
        """Takes a turn of the policy: an answer, or a move."""
        if self._episode is None or self._env.spec.played:
            return self._played(text)
        return self._scored(answered(self._episode, [text]), "")

    def _played(self, action: Action) -> Answer:
        if self._episode is None:
            return _NO_TASK
        worked = self._worked
        play_turn(self._envs, {self._number: (self._episode, action, worked)})
        if worked.failed is not None:
            return self._failed(worked.failed)
        turn = worked.turns[-1]
        text = turn.answer.observation if turn.tool_answer is None and turn.answer else turn.tool_answer or ""
        over = worked.ended or len(worked.turns) >= self._env.spec.max_turns
        return self._ended(text) if over else Answer(text)

    def _ended(self, last: str) -> Answer:
        assert self._episode is not None
        turn = self._worked.turns[-1]
        if not self._worked.ended:
            calling = partial(cut_off, turn.tool_answer is not None)
            cut: StepAnswer | Raised | None = self._envs.call({self._number: calling})[self._number]
            if isinstance(cut, Raised):
                return self._failed(cut)
            self._worked.cut = cut
        return self._scored(completion_of(self._episode, self._worked), last)

    def _scored(self, completion: Completion, last: str) -> Answer:
        self._give_up()
        outcomes = {name: results[0] for name, results in self._scorer.score([completion]).items()}
        verifier = self._verifier
        judgement = None if verifier is None else self._scorer.judge([completion])[verifier.name][0]
        problems = [outcome.reason or "" for outcome in outcomes.values() if outcome.kind == "failure"]
        problems += [judgement.reason or ""] if judgement is not None and judgement.verdict is None else []
        if problems:
            return Answer(f"The task is over. It could not be scored: {'; '.join(problems)}", error=True)
        ok = None if judgement is None or judgement.verdict is None else judgement.verdict.ok
        data: dict[str, Any] = {"score": _total(self._rewards, outcomes), "correct": ok}
        data["rewards"] = {name: outcome.score for name, outcome in outcomes.items()}
        sentence = "The task is over." if data["score"] is None else f"The task is over. Score: {data['score']:g}"
        sentence += "" if ok is None else f", {'correct' if ok else 'not correct'}"
        end = f"{sentence}\n{json.dumps(data['rewards'])}"
        return Answer(f"{last}\n\n{end}" if last else end, data=data)

    def _failed(self, raised: Raised) -> Answer:
        self._give_up()
        return Answer(f"The task failed, and has no score: {explain(raised.error)}", error=True)

    def _give_up(self) -> None:
        if self._episode is not None and self._env.spec.played:
            self._envs.release(self._number)
        self._episode = None


_NO_TASK = Answer("no task is open: call reset first", error=True)


def _total(rewards: Sequence[BoundReward], outcomes: Mapping[str, Outcome]) -> float | None:
    scores = [(reward.weight, outcomes[reward.name].score) for reward in rewards]
    paid = [weight * score for weight, score in scores if score is not None]
    return sum(paid) if paid else None


_INTEGER = {"type": "integer", "minimum": 0, "description": "the number of the task; default: the next one"}
_OWN: dict[str, dict[str, Any]] = {
    "reset": {
        "description": "Begins a task and returns it. A task that is open is given up.",
        "parameters": {"type": "object", "properties": {"index": _INTEGER}},
    },
    "submit": {
        "description": "Submits an answer or a move for the open task. Returns what follows, and the score at the end.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "the answer or the move"}},
            "required": ["text"],
        },
    },
}


def refuse_clashes(schemas: Sequence[Schema], env: str) -> None:
    """Refuses an environment with a tool that has one of our names. Raises UsageError."""
    for schema in schemas:
        if schema["function"]["name"] in _OWN:
            raise UsageError(
                f"env '{env}' has a tool named '{schema['function']['name']}', as the server has one of its own. "
                "Rename the environment's."
            )


async def serve(env: ServedEnv, name: str) -> None:
    """Serves an environment until standard input ends."""
    import asyncio

    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    one_at_a_time = asyncio.Lock()
    functions = [schema["function"] for schema in env.schemas]
    tools = [
        Tool(name=each["name"], description=each["description"], input_schema=each["parameters"])
        for each in (*({"name": own, **rest} for own, rest in _OWN.items()), *functions)
    ]

    async def listed(context: Any, params: Any) -> Any:
        return ListToolsResult(tools=tools)

    async def called(context: Any, params: Any) -> Any:
        async with one_at_a_time:
            answer = await asyncio.to_thread(_answer, env, params.name, dict(params.arguments or {}))
        content = [TextContent(type="text", text=answer.text)]
        return CallToolResult(
            content=content, is_error=answer.error, structured_content=dict(answer.data) if answer.data else None
        )

    server = Server(f"grpo {name}", version=grpo.__version__, on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def _answer(env: ServedEnv, name: str, arguments: dict[str, Any]) -> Answer:
    if name == "reset":
        index = arguments.get("index")
        if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
            return Answer("index must be a whole number", error=True)
        return env.reset(index)
    if name == "submit":
        text = arguments.get("text")
        return env.submit(text) if isinstance(text, str) else Answer("text must be a text", error=True)
    if name not in [schema["function"]["name"] for schema in env.schemas]:
        return Answer(f"there is no tool '{name}'", error=True)
    return env.call(name, arguments)
