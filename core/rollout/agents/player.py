"""Plays the episodes of a batch, with one agent program for each, and answers their requests.

A round of sampling begins when every running program waits for an answer, so that a seeded run repeats whatever the
timing; or when the first has waited for `window` seconds, if set. A call's random numbers depend on the rollout, its
prompt and how often that was asked before.

A program's time limit excludes its waits for the policy. An episode in which the policy was never heard, or that
something out of its program's reach broke, is a failure; any other is judged.
"""

from __future__ import annotations

import hashlib
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from grpo.core.agents.program import AgentExit
from grpo.core.env.episodes import Episode
from grpo.core.rollout.agents.desk import AgentDesk, AgentEpisode, Table, Waiting
from grpo.core.rollout.agents.rollout import DEFAULT, Choice, trajectory_of
from grpo.core.rollout.turns.play import Sample, Trajectory
from grpo.core.rollout.types import SamplingParams
from grpo.plugins.agents import Access
from grpo.plugins.types import Completion

SETTLE = 0.01  # seconds without a new request before a round begins: calls made side by side come one by one
LOOK = 0.2  # seconds from one look at the programs' time limits to the next


class Programs(Protocol):
    """Starts agent programs and ends them (core/agents/runner.py)."""

    def start(self, episode: Episode, access: Access, ended: Callable[[AgentExit], None]) -> int:
        """Starts an episode's program; returns its number. `ended` is called, in any thread, when it is all dead."""
        ...

    def kill(self, number: int) -> None:
        """Ends a program with all of its processes."""
        ...


@dataclass(frozen=True, slots=True)
class AgentLimits:
    seconds: float  # that a program may take in an episode, without the time in which it waits for the policy
    at_once: int
    # seconds after which a round of sampling begins though some programs do not wait; None: it waits for all
    window: float | None = None
    choice: Choice = DEFAULT  # which of their calls train


@dataclass(slots=True)
class _Played:
    start: Episode
    episode: AgentEpisode
    began: float = 0.0
    program: int = -1
    exit: AgentExit | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class AgentPlayer:
    """Plays rollouts by a program; it has the form of `Player` (core/rollout/turns/play.py)."""

    desk: AgentDesk
    url: str
    programs: Programs
    limits: AgentLimits
    end: int  # the token that ends a completion

    def play(
        self,
        episodes: Sequence[Episode],
        prompts: Sequence[Sequence[int]],
        sample: Sample,
        params: SamplingParams,
        *,
        on_ended: Callable[[int, Completion], None] | None = None,
    ) -> list[Trajectory]:
        """Plays one rollout of each episode; agents replace the environment's `prompts` by their own."""
        table = Table()
        played = [_Played(start, self.desk.open(number, table)) for number, start in enumerate(episodes)]
        trajectories: dict[int, Trajectory] = {}
        waits = deque(range(len(played)))
        running: set[int] = set()
        try:
            while len(trajectories) < len(played):
                while waits and len(running) < self.limits.at_once:
                    number = waits.popleft()
                    running.add(number)
                    self._start(played[number], table)
                with table.changed:
                    table.wanted = len(running)
                    if not self._ready(played, running, table):
                        table.changed.wait(self._pause(table))
                    ended = [number for number in running if played[number].exit is not None]
                    taken = table.take() if self._ready(played, running, table) and not ended else []
                for number in sorted(ended):
                    running.discard(number)
                    rollout = played[number]
                    self.desk.end(rollout.episode)
                    episode = self.desk.settled(rollout.episode)
                    trajectory = trajectory_of(rollout.start, episode, _exit(rollout), self.end, self.limits.choice)
                    trajectories[number] = trajectory
                    if on_ended is not None:
                        on_ended(number, trajectory.completion)
                if taken:
                    self._answer(taken, sample, params)
                self._end_late(played, running)
        finally:
            for number in running:
                self.programs.kill(played[number].program)
            for rollout in played:
                self.desk.end(rollout.episode)
            self.desk.forget([rollout.episode for rollout in played])
        return [trajectories[number] for number in range(len(played))]

    def _start(self, rollout: _Played, table: Table) -> None:
        def ended(left: AgentExit) -> None:
            with table.changed:
                rollout.exit = left
                table.changed.notify_all()

        rollout.began = time.monotonic()
        access = Access(self.url, rollout.episode.key, self.desk.model)
        rollout.program = self.programs.start(rollout.start, access, ended)

    def _ready(self, played: Sequence[_Played], running: set[int], table: Table) -> bool:
        if any(played[number].exit is not None for number in running):
            return True
        if not table.waiting:
            return False
        waiting = {each.episode.number for each in table.waiting}
        since = time.monotonic() - table.last
        if waiting >= running and since >= SETTLE:
            return True
        return self.limits.window is not None and time.monotonic() - table.first >= self.limits.window

    def _pause(self, table: Table) -> float:
        """Returns the seconds after which a round may begin though no program asks or ends until then."""
        if not table.waiting:
            return LOOK
        now = time.monotonic()
        window = LOOK if self.limits.window is None else table.first + self.limits.window - now
        return max(0.0, min(LOOK, window, table.last + SETTLE - now if table.last + SETTLE > now else LOOK))

    def _answer(self, taken: Sequence[Waiting], sample: Sample, params: SamplingParams) -> None:
        for room in sorted({waiting.room for waiting in taken}):
            some = [waiting for waiting in taken if waiting.room == room]
            own = replace(params, max_tokens=max(waiting.most for waiting in some), keys=_keys(params.keys, some))
            for waiting, sampled in zip(some, sample([waiting.call.prompt for waiting in some], own), strict=True):
                self.desk.answer(waiting, sampled)

    def _end_late(self, played: Sequence[_Played], running: set[int]) -> None:
        now = time.monotonic()
        for number in running:
            rollout = played[number]
            if rollout.exit is None and now - rollout.began - rollout.episode.waiting() > self.limits.seconds:
                rollout.timed_out = True
                self.programs.kill(rollout.program)


def _exit(rollout: _Played) -> AgentExit:
    assert rollout.exit is not None
    return replace(rollout.exit, timed_out=True) if rollout.timed_out else rollout.exit


def _keys(keys: Sequence[int] | None, calls: Sequence[Waiting]) -> tuple[int, ...] | None:
    if keys is None:
        return None
    asked = (
        f"{keys[waiting.episode.number]} {waiting.call.turn} ".encode() + array("q", waiting.call.prompt).tobytes()
        for waiting in calls
    )
    return tuple(int.from_bytes(hashlib.blake2b(each, digest_size=15).digest()) for each in asked)
