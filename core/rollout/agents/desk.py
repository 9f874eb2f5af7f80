"""Passes requests of agent programs from the gateway's event loop to the sampling thread, and answers back.

A request waits at its batch's `Table` until the sampler takes it. Requests of an ended episode or with an unknown key
are refused; nothing but answers can be reached by a key.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from grpo.core.gateway.conversation import Ask, Finish, Refused, Reply, refuse_other_model
from grpo.core.rollout.agents.splice import Splice
from grpo.core.rollout.agents.tree import Call, CallTree, Reason
from grpo.core.rollout.types import Sampled
from grpo.core.text.printable import one_line
from grpo.plugins.errors import UsageError

ENDED = "the episode has ended: nothing is answered any more"
SETTLING = 60.0  # seconds for requests that are refused to go away
LONGEST_TOKEN = 64  # characters; some vocabularies have longer ones, of blanks alone
MOST_REFUSALS, LONGEST_REFUSAL = 8, 300  # that are remembered of an episode, and characters of each


@dataclass(frozen=True, slots=True)
class CallLimits:
    calls: int  # the most that are answered
    sampled: int  # the most tokens of one answer
    total: int  # the most tokens that are sampled in all
    context: int | None  # of the model, in tokens; None: it does not say


@dataclass(slots=True, eq=False)
class AgentEpisode:
    """The calls of one program in one episode."""

    number: int
    key: str
    table: Table
    tree: CallTree = field(default_factory=CallTree)
    ended: bool = False  # nothing is answered any more
    refused: list[str] = field(default_factory=list)  # the refusals that it was told, in order, the first few
    limited: bool = False  # a limit of calls, tokens or the context cut it off
    waited: float = 0.0  # seconds in which at least one request waited, until the last time that none did
    open: int = 0
    since: float = 0.0  # when the first of them came, by the monotonic clock

    def waiting(self) -> float:
        return self.waited + (time.monotonic() - self.since if self.open else 0.0)


@dataclass(frozen=True, slots=True)
class Waiting:
    episode: AgentEpisode
    call: Call
    room: int  # the most tokens that the run would sample here
    most: int  # those that the program wants, too


class Table:
    """The requests of a batch that wait for the sampler.

    `changed`: notified for the first request, and when `wanted` episodes wait: waking the sampler costs the gateway
    Python's lock. `first`, `last`: when the first and the last of them came, by the monotonic clock.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting: list[Waiting] = []
        self.wanted = 0
        self.first = self.last = 0.0

    def put(self, waiting: Waiting) -> None:
        with self.changed:
            self.last = time.monotonic()
            self.first = self.first if self.waiting else self.last
            self.waiting.append(waiting)
            if len(self.waiting) == 1 or len({each.episode.number for each in self.waiting}) >= self.wanted:
                self.changed.notify_all()

    def take(self) -> list[Waiting]:
        """Returns all that wait, ordered by rollout and request, whatever came first."""
        with self.changed:
            taken, self.waiting = self.waiting, []
        return sorted(taken, key=lambda each: (each.episode.number, each.call.prompt, each.call.turn))


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to a request (`Answered` of core/gateway/conversation.py)."""

    calls: Sequence[Call]

    @property
    def replies(self) -> tuple[Reply, ...]:
        return tuple(call.reply for call in self.calls if call.reply is not None)

    def delivered(self) -> None:
        for call in self.calls:
            call.delivered = True


class AgentDesk:
    """Knows the episodes and turns their requests into calls (`Desk` of core/gateway/conversation.py)."""

    def __init__(self, model: str, splice: Splice, limits: CallLimits) -> None:
        self.model = model
        self.limits = limits
        self._splice = splice
        self._episodes: dict[str, AgentEpisode] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, number: int, table: Table) -> AgentEpisode:
        """Returns a new episode with a key of its own."""
        episode = AgentEpisode(number, f"grpo-{secrets.token_hex(32)}", table)
        self._episodes[episode.key] = episode
        return episode

    def answer(self, waiting: Waiting, sampled: Sampled) -> None:
        """Passes on what was sampled for a call; from the thread that samples."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._answered, waiting, sampled)

    def end(self, episode: AgentEpisode) -> None:
        """Answers nothing of an episode any more; what waits is refused."""
        episode.ended = True
        with episode.table.changed:
            episode.table.waiting = [each for each in episode.table.waiting if each.episode is not episode]
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._release, episode)

    def settled(self, episode: AgentEpisode) -> AgentEpisode:
        """Returns an ended episode once all that its program was sent is noted; from another thread."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(_settle(episode), self._loop).result(SETTLING)
        return episode

    def forget(self, episodes: Sequence[AgentEpisode]) -> None:
        """Forgets episodes; their keys are unknown then."""
        for episode in episodes:
            self._episodes.pop(episode.key, None)

    def known(self, key: str) -> bool:
        return key in self._episodes

    async def ask(self, key: str, ask: Ask) -> Answers:
        """Answers a request with the sampler's completion. Raises Refused: see `Desk`."""
        self._loop = asyncio.get_running_loop()
        episode = self._episode(key)
        calls = self._calls(episode, ask)
        began = time.monotonic()
        episode.since = episode.since if episode.open else began
        episode.open += 1
        try:
            for call in calls:
                await self._answer_of(episode, call)
        finally:
            episode.open -= 1
            if not episode.open:
                episode.waited += time.monotonic() - episode.since
        for call in calls:
            if call.reply is None:
                raise Refused(400, ENDED, "episode_ended")
            call.seconds = call.seconds or time.monotonic() - began
        return Answers(calls)

    def count(self, key: str, ask: Ask) -> int:
        return len(self._prompt(self._episode(key), ask)[0])

    def note(self, key: str, refused: Refused) -> None:
        episode = self._episodes.get(key)
        if episode is not None and not episode.ended and len(episode.refused) < MOST_REFUSALS:
            episode.refused.append(one_line(str(refused), LONGEST_REFUSAL))

    def _episode(self, key: str) -> AgentEpisode:
        episode = self._episodes.get(key)
        if episode is None:
            raise Refused(401, "no episode has this key", "invalid_api_key")
        return episode

    async def _answer_of(self, episode: AgentEpisode, call: Call) -> None:
        if call.reply is None and not episode.ended:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            call.waiters.append(waiter)
            try:
                await waiter
            finally:
                call.waiters.remove(waiter)

    def _calls(self, episode: AgentEpisode, ask: Ask) -> list[Call]:
        """Returns the calls that a request is: earlier ones whose answers did not arrive, and new ones."""
        if episode.ended:
            raise Refused(400, ENDED, "episode_ended")
        self._refuse_endless(episode, ask)
        refuse_other_model(ask, self.model)
        prompt, parent, reason = self._prompt(episode, ask)
        calls = episode.tree.unreceived(prompt)[: ask.count]
        for _ in range(ask.count - len(calls)):
            room, most = self._room(episode, len(prompt), ask.max_tokens)
            calls.append(episode.tree.add(ask, prompt, parent, reason))
            episode.table.put(Waiting(episode, calls[-1], room, most))
        return calls

    def _refuse_endless(self, episode: AgentEpisode, ask: Ask) -> None:
        """Refuses what surely has more tokens than the context, before it is rendered."""
        context = self.limits.context
        calls = (call for turn in ask.messages for call in turn.calls)
        written = sum(len(turn.text) for turn in ask.messages) + sum(len(str(tool)) for tool in (*ask.tools, *calls))
        if context is not None and written > LONGEST_TOKEN * context:
            raise _too_long(episode, context, f"{written} characters")

    def _room(self, episode: AgentEpisode, prompt: int, wanted: int | None) -> tuple[int, int]:
        limits = self.limits
        if len(episode.tree.calls) >= limits.calls:
            raise _over(episode, f"the episode's {limits.calls} calls are used up")
        left = limits.total - sum(len(call.ids) for call in episode.tree.calls)
        if left < 1:
            raise _over(episode, f"the episode's {limits.total} sampled tokens are used up")
        room = limits.sampled if limits.context is None else min(limits.sampled, limits.context - prompt)
        if room < 1:
            raise _too_long(episode, limits.context, str(prompt))
        return room, min(room, left, wanted or room)

    def _answered(self, waiting: Waiting, sampled: Sampled) -> None:
        call, tools = waiting.call, waiting.call.ask.tools
        ids, stopped = sampled.token_ids[: waiting.most], None
        if call.ask.stop and (cut := self._splice.cut(ids, call.ask.stop)):
            ids, stopped = ids[: cut[0]], cut[1]
        turn = self._splice.read(ids, tools, f"call_{call.number}")
        if stopped is not None and not turn.calls:
            turn = replace(turn, text=turn.text.partition(stopped)[0].strip())
        whole = stopped is not None or (sampled.finish_reason == "stop" and len(ids) == len(sampled.token_ids))
        finish: Finish = "calls" if turn.calls else "stop" if whole else "length"
        call.ids, call.logprobs = ids, sampled.logprobs[: len(ids)]
        call.reply = Reply(turn, finish, len(call.prompt), len(ids), stopped)
        waiting.episode.tree.answer(call, turn)
        _wake(call)

    def _release(self, episode: AgentEpisode) -> None:
        for call in episode.tree.calls:
            _wake(call)

    def _prompt(self, episode: AgentEpisode, ask: Ask) -> tuple[tuple[int, ...], Call | None, Reason | None]:
        """Returns the tokens of a request, and the call that it goes on from or why there is none."""
        reason: Reason | None = None
        if known := episode.tree.parent(ask):
            parent, new = known
            assert parent.answer is not None
            try:
                between = self._splice.between(parent.answer, new, ask.tools, parent.ask.messages, parent.ids[-1])
                return (*parent.prompt, *parent.ids, *between), parent, None
            except UsageError:
                reason = "template"
        try:
            whole = self._splice.whole(ask.messages, ask.tools)
        except UsageError as error:
            raise Refused(400, str(error)) from None
        return tuple(whole), None, reason or episode.tree.reason(ask)


def _over(episode: AgentEpisode, problem: str, code: str = "episode_ended") -> Refused:
    episode.limited = True
    return Refused(400, problem, code)


def _too_long(episode: AgentEpisode, context: int | None, length: str) -> Refused:
    problem = f"This model's maximum context length is {context} tokens, and the messages have {length}. Shorten them."
    return _over(episode, problem, "context_length_exceeded")


async def _settle(episode: AgentEpisode) -> None:
    """Waits until no request of an episode is under way; an answer that was sent is noted right after it."""
    while episode.open:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)


def _wake(call: Call) -> None:
    for waiter in call.waiters:
        if not waiter.done():
            waiter.set_result(None)
