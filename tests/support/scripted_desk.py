"""Answers requests of the gateway with replies that a test has written, and serves it on a port of this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from grpo.core.gateway.conversation import Ask, ChatTurn, Desk, Finish, Refused, Reply, ToolUse
from grpo.core.gateway.serving import gateway_server

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
        self.deliveries += 1


@dataclass
class ScriptedDesk:
    """Answers in the order of a script, whose last reply goes on for ever.

    Attributes:
        script: replies; a function makes one of a request, an error is raised.
        model: the name of the policy.
        asked: all requests, with their keys.
        answers: what was answered.
        cancelled: requests whose client went away.
        open: set while requests are to be answered.
        waiting: how many requests wait.
    """

    script: Sequence[Reply | Refused | Callable[[Ask], Reply]] = (Reply(ChatTurn("assistant", "yes"), "stop", 5, 7),)
    model: str = MODEL
    asked: list[tuple[str, Ask]] = field(default_factory=list)
    answers: list[ScriptedAnswer] = field(default_factory=list)
    cancelled: int = 0
    waiting: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    shut: bool = False

    def known(self, key: str) -> bool:
        return key in (KEY, OTHER_KEY)

    async def ask(self, key: str, ask: Ask) -> ScriptedAnswer:
        with self.changed:
            self.waiting += 1
            self.changed.notify_all()
        try:
            while self.shut:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            with self.changed:
                self.cancelled += 1
                self.changed.notify_all()
            raise
        finally:
            self.waiting -= 1
        step = self.script[min(len(self.asked), len(self.script) - 1)]
        self.asked.append((key, ask))
        if isinstance(step, Exception):
            raise step
        replies = tuple(step(ask) if callable(step) else step for _ in range(ask.count))
        self.answers.append(ScriptedAnswer(replies))
        return self.answers[-1]

    def count(self, key: str, ask: Ask) -> int:
        self.asked.append((key, ask))
        return sum(len(turn.text.split()) for turn in ask.messages)

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits until something has happened at the desk, a minute at most."""
        with self.changed:
            assert self.changed.wait_for(condition, 60)

    @property
    def messages(self) -> tuple[ChatTurn, ...]:
        """The messages of the last request."""
        return self.asked[-1][1].messages


@contextmanager
def served(desk: Desk, pause: float = 5.0) -> Iterator[str]:
    """Serves a gateway; its URL is yielded."""
    with gateway_server(desk, pause=pause) as server:
        yield f"http://127.0.0.1:{server.port}"
