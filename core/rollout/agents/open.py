"""Starts and ends the gateway and the program runner that an agent's episodes need."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from grpo.core.agents.in_session import SessionPrograms
from grpo.core.agents.program import AgentExit, task_of
from grpo.core.agents.runner import AgentRunner
from grpo.core.config.settings import RolloutSettings
from grpo.core.env.episodes import Episode
from grpo.core.rollout.agents.desk import AgentDesk, CallLimits
from grpo.core.rollout.agents.player import AgentLimits, AgentPlayer
from grpo.core.rollout.agents.rollout import Choice
from grpo.core.rollout.agents.splice import Splice
from grpo.plugins._spec.binding import BoundAgent, BoundEnv
from grpo.plugins.agents import Access

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MODEL = "policy"  # the name that programs ask for
LONGEST = 7 * 86_400.0  # seconds; programs are ended by the time that they take themselves (player.py)


class AgentSide:
    """A gateway and the programs that ask it; close it when the run ends. UsageError: the agent cannot be imported.

    `envs`: whose episodes are played; where one opens sessions, the program runs in them. `warned`: told about this
    machine. `hidden`: paths that programs in sessions must not see.
    """

    def __init__(
        self,
        agent: BoundAgent,
        envs: Sequence[BoundEnv],
        rollout: RolloutSettings,
        tokenizer: PreTrainedTokenizerBase,
        context: int | None,
        warned: Callable[[str], None],
        hidden: Sequence[str],
    ) -> None:
        from grpo.core.gateway.app import gateway_server

        limits = CallLimits(
            calls=rollout.turns,
            sampled=rollout.max_completion_length,
            total=rollout.turns * rollout.max_completion_length,
            context=context,
        )
        self._desk = AgentDesk(MODEL, Splice(deepcopy(tokenizer)), limits)
        self._programs = _Programs(agent, envs, rollout.step_timeout, warned, hidden)
        try:
            self._server = gateway_server(self._desk)
            self._server.start()
        except BaseException:
            self._programs.close()
            raise
        choice = Choice(rollout.agent_trains, agent.spec.auxiliary)
        self._limits = AgentLimits(rollout.agent_seconds, rollout.agents_at_once, rollout.agent_window, choice)
        self._end = int(tokenizer.eos_token_id)

    def player(self) -> AgentPlayer:
        """Returns what plays the episodes of any environment whose episodes ask one question."""
        url = f"http://127.0.0.1:{self._server.port}"
        return AgentPlayer(self._desk, url, self._programs, self._limits, self._end)

    def close(self) -> None:
        """Ends all programs, then the gateway."""
        self._programs.close()
        self._server.stop()


class _Programs:
    """The runner of programs for several batches at once: each knows its episodes by numbers of its own."""

    def __init__(
        self,
        agent: BoundAgent,
        envs: Sequence[BoundEnv],
        seconds: float,
        warned: Callable[[str], None],
        hidden: Sequence[str],
    ) -> None:
        self._in_sessions = SessionPrograms(agent, [env for env in envs if env.spec.in_session], seconds, hidden)
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._callbacks: dict[int, Callable[[AgentExit], None]] = {}
        self._runner = AgentRunner(agent, LONGEST, self._ended)
        if self._runner.notice:
            warned(self._runner.notice)

    def start(self, episode: Episode, access: Access, ended: Callable[[AgentExit], None]) -> int:
        with self._lock:
            number = next(self._numbers)
            self._callbacks[number] = ended
        if self._in_sessions.takes(episode):
            self._in_sessions.start(number, episode, access, lambda left: self._ended(number, left))
        else:
            self._runner.start(number, task_of(episode), access)
        return number

    def kill(self, number: int) -> None:
        self._in_sessions.kill(number)
        self._runner.kill(number)

    def close(self) -> None:
        self._in_sessions.close()
        self._runner.close()

    def _ended(self, number: int, left: AgentExit) -> None:
        with self._lock:
            callback = self._callbacks.pop(number)
        callback(left)
