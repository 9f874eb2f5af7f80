"""Plays tasks of verifiers in a fork of a process that has loaded the taskset (`grpo.envs.isolated`).

It gets only harmless environment variables and those that the user names. A first answer at which the process crashes,
fills its memory or never ends is wrong if the text is the cause: an empty answer plays, and the text fails again.
Anything else that is raised is a failure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from grpo.envs.isolated.child import OVERWHELMED
from grpo.envs.isolated.remote import ForkServer, IsolatedEnv, ProcessEnded, TookTooLong
from grpo.envs.verifiers.env import Step, TaskEnv
from grpo.envs.verifiers.tasks import source_of


def maker(
    member: str, size: int | None, config: Mapping[str, Any], system: str | None, success: float
) -> Callable[[], TaskEnv]:
    """Loads a taskset and returns what makes an environment of it."""
    source = source_of(member, size, config)
    return lambda: TaskEnv(member, source, system, success)


def fork_server_of(options: Mapping[str, Any], variables: str, memory: int) -> ForkServer:
    """Returns the process that loads a taskset with options of `maker`, the same for the same settings."""
    return _fork_server(json.dumps(options, sort_keys=True), variables, memory)


@lru_cache(maxsize=8)
def _fork_server(options: str, variables: str, memory: int) -> ForkServer:
    given = json.loads(options)
    names = [name.strip() for name in variables.split("+") if name.strip()]
    return ForkServer(f"verifiers:{given['member']}", (__name__, maker.__name__), given, names, memory)


_OVERWHELMED = (ProcessEnded, TookTooLong, *OVERWHELMED)


def _by_the_text(error: Exception) -> bool:
    """Whether the text may be the cause: the process was not killed, and was not just waiting."""
    if isinstance(error, TookTooLong):
        return error.busy
    return not isinstance(error, ProcessEnded) or error.by_itself


class ApartTool:
    """A function that the policy may call, over there."""

    def __init__(self, schema: Mapping[str, Any], env: ApartTaskEnv) -> None:
        self.__name__: str = schema["function"]["name"]
        self.json_schema = schema
        self._env = env

    def __call__(self, **arguments: Any) -> str:
        answer: str = self._env.ask("call", self.__name__, **arguments)
        return answer


class ApartTaskEnv(IsolatedEnv):
    """Plays tasks over there and scores what the policy said with their own rewards."""

    def __init__(self, fork_server: ForkServer, tasks: int, seconds: float) -> None:
        super().__init__(fork_server, seconds)
        self._tasks = tasks
        self._row: Any = None
        self._untouched = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        row = (options or {}).get("row", {"task": int(self.np_random.integers(self._tasks))})
        shown, info = self.ask("reset", options={"row": row})
        self._open = self._untouched = True
        self._row = row
        return shown, info

    @property
    def tools(self) -> list[ApartTool]:
        return [ApartTool(schema, self) for schema in self.ask("tools")] if self._open else []

    def step(self, action: str) -> Step:
        """Takes what the policy said, "" where its tools ended the episode; raises where task or process failed."""
        first, self._untouched = self._untouched, False
        try:
            return self._stepped("step", action)
        except _OVERWHELMED as error:
            if not first or not _by_the_text(error) or self._raises("") is not None:
                raise
            again = error if isinstance(error, TookTooLong) else self._raises(action)
            if not isinstance(again, _OVERWHELMED) or not _by_the_text(again):
                raise
            self._open = False
            reason = f"{type(error).__name__}: {error}"
            return "", 0.0, True, False, {"scores": {}, "success": False, "reason": reason}

    def tools_used(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        self._checked("")
        self._untouched = False
        return bool(self.ask("tools_used", [dict(message) for message in messages]))

    def cut(self) -> Step:
        return self._stepped("cut")

    def close(self) -> None:
        self._open = False
        super().close()

    def _stepped(self, method: str, *args: Any) -> Step:
        self._checked("")
        observation, reward, ended, cut, info = self.ask(method, *args)
        self._open = not (ended or cut)
        return observation, reward, ended, cut, info

    def _raises(self, action: str) -> Exception | None:
        super().close()
        try:
            self.ask("reset", options={"row": self._row})
            self.ask("step", action)
        except Exception as error:
            return error
        finally:
            super().close()
        return None
