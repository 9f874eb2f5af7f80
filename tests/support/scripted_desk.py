"""Answers requests of the gateway with replies that a test has written, and serves it on a port of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from grpo.core.gateway.app import gateway_server
from grpo.core.gateway.conversation import Ask, ChatTurn, Desk, Finish, Refused, Reply, ToolUse

KEY, OTHER_KEY = "key-of-an-episode", "key-of-another"
MODEL = "policy/of-a-test"


def said(text: str = "", *calls: ToolUse, finish: Finish | None = None, stopped_by: str | None = None) -> Reply:
    """Returns a reply of 7 tokens to a prompt of 5."""
    return Reply(ChatTurn("assistant", text, calls), finish or ("calls" if calls else "stop"), 5, 7, stopped_by)


@dataclass
class ScriptedAnswer:
    """An answer, and how often it was delivered."""

    replies: tuple[Reply, ...]
    deliveries: int = 0

    def delivered(self) -> None:
        """Counts a delivery."""
        self.deliveries += 1


Step = Reply | Exception | Callable[[Ask], Reply]


@dataclass
class ScriptedDesk:
    """Answers in the order of a script, whose last step goes on for ever.

    Attributes:
        script: replies; a function makes one of a request, an error is raised.
        shut: whether requests have to wait.
        delay: seconds that each waits.
        model: the name of the policy.
        waiting, cancelled: how many requests wait, and how many clients went away.
        asked: all requests that were answered, with their keys.
        answers: the answers to them.
        refused: what was refused, with the keys.
    """

    script: Sequence[Step] = (said("yes"),)
    shut: bool = False
    delay: float = 0.0
    model: str = MODEL
    waiting: int = 0
    cancelled: int = 0
    asked: list[tuple[str, Ask]] = field(default_factory=list)
    answers: list[ScriptedAnswer] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def note(self, key: str, refused: Refused) -> None:
        """Notes a request that was refused."""
        self.refused.append((key, str(refused)))

    def known(self, key: str) -> bool:
        """Returns whether it is one of two keys."""
        return key in (KEY, OTHER_KEY)

    async def ask(self, key: str, ask: Ask) -> ScriptedAnswer:
        """Takes a step of the script."""
        self.waiting += 1
        try:
            await asyncio.sleep(self.delay)
            while self.shut:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        step = self.script[min(len(self.asked), len(self.script) - 1)]
        self.asked.append((key, ask))
        if isinstance(step, Exception):
            raise step
        self.answers.append(ScriptedAnswer(tuple(step(ask) if callable(step) else step for _ in range(ask.count))))
        return self.answers[-1]

    def count(self, key: str, ask: Ask) -> int:
        """Counts words."""
        if isinstance(self.script[0], Refused):
            raise self.script[0]
        return sum(len(turn.text.split()) for turn in ask.messages)

    @property
    def last(self) -> Ask:
        """The last request that was answered."""
        return self.asked[-1][1]


@contextmanager
def served(desk: Desk, pause: float = 5.0) -> Iterator[str]:
    """Serves a gateway; its URL is yielded."""
    with gateway_server(desk, pause=pause) as server:
        yield f"http://127.0.0.1:{server.port}"
