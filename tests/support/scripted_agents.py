"""Agent programs as coroutines that ask the desk itself, and a policy that says what a script has for a prompt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from grpo.core.agents.program import AgentExit, task_of
from grpo.core.env.episodes import Episode
from grpo.core.gateway.conversation import Ask, ChatTurn, Refused, Reply
from grpo.core.rollout.agents.desk import AgentDesk, CallLimits
from grpo.core.rollout.agents.player import AgentLimits, AgentPlayer
from grpo.core.rollout.agents.splice import Splice
from grpo.core.rollout.turns.play import Trajectory
from grpo.core.rollout.types import Sampled, SamplingParams
from grpo.plugins.agents import Access, AgentTask
from grpo.plugins.types import Message

PARAMS = SamplingParams(max_tokens=60, eos_ids=(2,), pad_id=0, keys=tuple(range(64)))
BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}

Policy = Callable[[str], str]  # the rendered prompt to what the policy says


class Chat:
    """What a scripted agent has: its task and a way to ask."""

    def __init__(self, desk: AgentDesk, task: AgentTask, access: Access) -> None:
        self.desk, self.task, self.access = desk, task, access

    async def ask(self, *messages: ChatTurn, receives: bool = True, **options: Any) -> Reply:
        """Asks, and receives the answer unless it is said that it gets lost."""
        try:
            answers = await self.desk.ask(self.access.key, Ask(messages, model=self.access.model, **options))
        except Refused as refused:  # as the gateway does
            self.desk.note(self.access.key, refused)
            raise
        if receives:
            answers.delivered()
        return answers.replies[0]


Agent = Callable[[Chat], Awaitable[str | AgentExit | None]]


class Coroutines:
    """`Programs` that run in the event loop of the desk."""

    def __init__(self, loop: asyncio.AbstractEventLoop, desk: AgentDesk, agent: Agent) -> None:
        self.loop, self.desk, self.agent = loop, desk, agent
        self.running: dict[int, Any] = {}

    def start(self, episode: Episode, access: Access, ended: Callable[[AgentExit], None]) -> int:
        async def run() -> None:
            try:
                answer = await self.agent(Chat(self.desk, task_of(episode), access))
                ended(answer if isinstance(answer, AgentExit) else AgentExit(0, False, 0.0, answer))
            except asyncio.CancelledError:
                ended(AgentExit(-9, False, 0.0))
                raise
            except Exception as error:
                ended(AgentExit(1, False, 0.0, stderr=f"{type(error).__name__}: {error}"))

        number = len(self.running)
        self.running[number] = asyncio.run_coroutine_threadsafe(run(), self.loop)
        return number

    def kill(self, number: int) -> None:
        self.running[number].cancel()


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Rounds:
    """Samples by a policy that sees the rendered prompt; remembers the prompts of each round."""

    def __init__(self, tokenizer: Any, policy: Policy) -> None:
        self.tokenizer, self.policy = tokenizer, policy
        self.rounds: list[list[tuple[int, ...]]] = []
        self.keys: list[int] = []

    def __call__(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sampled]:
        self.rounds.append([tuple(prompt) for prompt in prompts])
        self.keys += params.keys or ()
        found = []
        for prompt in prompts:
            text = self.policy(self.tokenizer.decode(list(prompt)))
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            ends = len(ids) < params.max_tokens
            ids = (*ids, self.tokenizer.eos_token_id) if ends else tuple(ids[: params.max_tokens])
            found.append(Sampled(ids, tuple(-0.01 * n for n in range(len(ids))), "stop" if ends else "length"))
        return found


def played(
    tokenizer: Any, agent: Agent, policy: Policy, count: int = 1, limits: CallLimits | None = None, **options: Any
) -> tuple[list[Trajectory], Rounds]:
    """Plays `count` episodes by an agent."""
    rounds = Rounds(tokenizer, policy)
    prompt = (Message(role="user", content="Say how many lines a.txt has."),)
    row = {"answer": "3", "files": {"a.txt": "1\n2\n3\n"}}
    episodes = [Episode(0, prompt, row, None, env="tasks", group=0) for _ in range(count)]
    with event_loop() as loop:
        limits = limits or CallLimits(calls=20, sampled=200, total=2000, context=4096)
        desk = AgentDesk("policy", Splice(tokenizer), limits)
        programs = Coroutines(loop, desk, agent)
        given = {"seconds": 60.0, "at_once": 64, **options}
        player = AgentPlayer(desk, "", programs, AgentLimits(**given), tokenizer.eos_token_id)
        return player.play(episodes, [[1]] * count, rounds, PARAMS), rounds


def system(text: str) -> ChatTurn:
    return ChatTurn("system", text)


def user(text: str) -> ChatTurn:
    return ChatTurn("user", text)


def tool(text: str, reply: Reply, number: int = 0) -> ChatTurn:
    return ChatTurn("tool", text, answers=reply.turn.calls[number].id)
