"""Keeps the calls of an episode as a tree: which call continues which, and which row trains which tokens.

A request goes on from an earlier call when its messages are that call's, then its answer, then something new, with the
same tools; its prompt is that call's tokens and the text between. Any other request is a new root, whose reason is
counted. Each way from a root to a leaf is a row; a sampled token trains in the first row that has it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from grpo.core.gateway.conversation import Ask, ChatTurn, Reply
from grpo.core.rollout.turns.play import Branch

Reason = Literal["first", "thread", "tools", "system", "compacted", "rewritten", "template", "again"]


@dataclass(slots=True, eq=False)
class Call:
    """One request of a program, and what was sampled for it."""

    number: int
    ask: Ask
    prompt: tuple[int, ...]
    parent: Call | None  # the call that it goes on from; None: it is a root
    # why it is a root: the first one, another thread of the program, other tools, another system message, a shorter
    # history, a changed one, a template that cannot go on, or the same question once more; None: no root
    reason: Reason | None
    thread: str  # which conversation of the program it belongs to
    turn: int  # which one it is among those of the episode with the same prompt
    # ids, logprobs: what was sampled, the tokens of `answer`; in nats
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    answer: ChatTurn | None = None  # the answer; None while it is not sampled
    reply: Reply | None = None
    delivered: bool = False
    seconds: float = 0.0  # from the request to the answer
    # who waits for the answer, in the event loop of the gateway
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def root(self) -> Call:
        return [self, *_above(self)][-1]


@dataclass(slots=True)
class CallTree:
    calls: list[Call] = field(default_factory=list)
    _ends: dict[bytes, Call] = field(default_factory=dict)
    _prompts: Counter[tuple[int, ...]] = field(default_factory=Counter)
    _last: tuple[Ask, list[bytes]] | None = None  # the request whose digests were computed last

    def parent(self, ask: Ask) -> tuple[Call, Sequence[ChatTurn]] | None:
        """Returns the call that a request goes on from and its new messages; None where there is none."""
        digests = self._digested(ask)
        for place in range(len(ask.messages), 0, -1):
            if ask.messages[place - 1].role == "assistant" and (call := self._ends.get(digests[place])):
                return call, ask.messages[place:]
        return None

    def unreceived(self, prompt: tuple[int, ...]) -> list[Call]:
        """Returns the calls with this prompt whose answers were not delivered, which a repeated request asks for."""
        return [call for call in self.calls if call.prompt == prompt and not call.delivered]

    def add(self, ask: Ask, prompt: tuple[int, ...], parent: Call | None, reason: Reason | None) -> Call:
        if parent is not None:
            parent.delivered = True  # nobody goes on from what they did not get
        call = Call(len(self.calls), ask, prompt, parent, reason, thread_of(ask), self._prompts[prompt])
        self._prompts[prompt] += 1
        self.calls.append(call)
        return call

    def answer(self, call: Call, answer: ChatTurn) -> None:
        """Records the answer of a call, so that later ones go on from it."""
        call.answer = answer
        self._ends.setdefault(_after(self._digested(call.ask)[-1], answer), call)

    def reason(self, ask: Ask) -> Reason:
        """Returns why a request that goes on from no call is a new root."""
        if not self.calls:
            return "first"
        same = [call for call in self.calls if call.thread == thread_of(ask)]
        if not same:
            if ask.thread:
                return "thread"
            last = self.calls[-1].ask
            tools = _plain(last.tools) != _plain(ask.tools)
            return "tools" if tools else "system"
        if any(call.ask.messages == ask.messages for call in same):
            return "again"
        return "compacted" if len(ask.messages) < len(same[-1].ask.messages) else "rewritten"

    def _digested(self, ask: Ask) -> list[bytes]:
        if self._last is None or self._last[0] is not ask:
            self._last = ask, list(_digests(ask))
        return self._last[1]

    def branches(self, trains: Callable[[Call], bool]) -> list[tuple[Branch, list[Call]]]:
        """Returns the rows of the calls that train, each with the calls whose tokens train in it."""
        chosen = [call for call in self.calls if call.delivered and call.ids and trains(call)]
        inner = {id(above) for call in chosen for above in _above(call)}
        taken: set[int] = set()
        rows: list[tuple[Branch, list[Call]]] = []
        for leaf in (call for call in chosen if id(call) not in inner):
            way = [call for call in (*reversed([*_above(leaf)]), leaf) if call.delivered]
            own = [call for call in way if id(call) not in taken and call in chosen]
            taken |= {id(call) for call in own}
            first = way.index(own[0])
            rows.append((_row(way[first:], {id(call) for call in own}), own))
        return rows


def thread_of(ask: Ask) -> str:
    """Returns which conversation of a program a request belongs to: as it says, else by its system text and tools."""
    system = [turn.text for turn in ask.messages[:1] if turn.role == "system"]
    return ask.thread or hashlib.blake2b(_plain([system, ask.tools]), digest_size=8).hexdigest()


def _above(call: Call) -> Iterator[Call]:
    while call.parent is not None:
        call = call.parent
        yield call


def _row(way: Sequence[Call], own: set[int]) -> Branch:
    """Returns the row of calls that follow each other; the tokens of those that are not its own train elsewhere."""
    start = way[0].prompt
    ids: list[int] = []
    logprobs: list[float] = []
    sampled: list[bool] = []
    for call in way:
        between = call.prompt[len(start) + len(ids) :]
        trains = id(call) in own
        ids += [*between, *call.ids]
        logprobs += [*(0.0 for _ in between), *(call.logprobs if trains else (0.0,) * len(call.ids))]
        sampled += [*(False for _ in between), *(trains for _ in call.ids)]
    return Branch(start, tuple(ids), tuple(logprobs), tuple(sampled))


def _digests(ask: Ask) -> Iterator[bytes]:
    digest = hashlib.blake2b(_plain(ask.tools), digest_size=16).digest()
    yield digest
    for turn in ask.messages:
        digest = _after(digest, turn)
        yield digest


def _after(digest: bytes, turn: ChatTurn) -> bytes:
    text = turn.text.strip() if turn.role == "assistant" else turn.text
    own = _plain([turn.role, text, [[call.name, call.arguments] for call in turn.calls]])
    return hashlib.blake2b(digest + own, digest_size=16).digest()


def _plain(value: Any) -> bytes:
    """Returns JSON in one spelling: keys in order, and 1 where a program that has no whole numbers writes 1.0."""
    return json.dumps(_whole(value), sort_keys=True, ensure_ascii=True).encode()


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _whole(inner) for key, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list | tuple) else value
