"""Wraps a session on an OpenEnv server as a text environment.

Theory of operation. The server keeps one environment for each WebSocket at /ws; messages are JSON objects with `type`
and `data`: "reset" and "step" are answered by "observation" or "error". /schema lists the fields of an action. A
refused start is tried again shortly, since a session that has just ended may still be counted.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grpo.envs.text.text_env import TextEnv, stated_action
from grpo.plugins.errors import OptionError, TransientError

_ASKING = 10.0  # seconds
_LARGEST = 16 * 2**20  # bytes of one message
_UNREAD = "VALIDATION_ERROR"
_FULL = "CAPACITY_REACHED"
_ROOM = 1.0  # seconds to wait for room


@dataclass(frozen=True, slots=True)
class Field:
    """Where a completion goes: the field's name and JSON type, or no name for a whole action as a JSON object."""

    name: str
    type: str


class ServerError(Exception):
    """The server answered with an error; `code` says which."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(f"the server says: {message} ({code})")
        self.message = message
        self.code = code


@lru_cache(maxsize=64)
def action_field(url: str, wanted: str | None) -> Field:
    """Asks a server which field of its action a completion goes into. Raises OptionError."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/schema", timeout=_ASKING) as answer:
            schema: Any = json.load(answer)["action"]
        named = schema.get("$defs", {})
        types = {name: _type(field, named) for name, field in schema.get("properties", {}).items()}
    except (urllib.error.URLError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise OptionError(
            f"openenv:{url}: no OpenEnv server answers at {url.rstrip('/')}/schema ({error}). Start it first."
        ) from error
    types.pop("metadata", None)
    if wanted is not None:
        if wanted not in types:
            raise OptionError(f"openenv:{url}: its action has no field '{wanted}'; it has: {', '.join(types)}.")
        return Field(wanted, types[wanted])
    required = [name for name in schema.get("required", []) if name in types]
    for names in (required, list(types)):
        texts = [name for name in names if types[name] == "string"]
        if len(names) == 1 or (len(texts) == 1 and not set(required) - set(texts)):
            name = names[0] if len(names) == 1 else texts[0]
            return Field(name, types[name])
    return Field("", "object")


def _type(field: Any, named: Mapping[str, Any]) -> str:
    """The JSON type of a field's schema, which may refer to `$defs` (an enumeration) or offer several types."""
    kinds = [field, *field.get("anyOf", ())]
    kinds = [named[kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind for kind in kinds]
    return next((str(kind["type"]) for kind in kinds if "type" in kind), "object")


class RemoteEnv(TextEnv):
    """Plays an environment on a server; a last reward of `success` or more reached its goal."""

    def __init__(
        self, url: str, field: Field, *, show: str | None, system: str, most_turns: int, success: float, seconds: float
    ) -> None:
        super().__init__()
        self._url = url.rstrip("/")
        self._field = field
        self._show = show
        self._system = system
        self._most_turns = most_turns
        self._success = success
        self._seconds = seconds
        self._session: Any = None
        self._connection = ExitStack()  # leaving it ends the session
        self._turns = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode by seed and task; TransientError without a server, ServerError for a bad answer."""
        super().reset(seed=seed)
        start = seed if seed is not None else int(self.np_random.integers(2**31))
        row = (options or {}).get("row") or {}
        task = {name: row[name] for name in ("split", "index") if name in row}
        shown = self._started({"seed": start, **task})
        self._turns = 0
        self._open = True
        system = [{"role": "system", "content": self._system}] if self._system else []
        prompt = [*system, {"role": "user", "content": shown}]
        return shown, {"prompt": prompt, "row": {**row, "server": self._url}}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Sends the action: what stands in the last `<action>` or `<answer>`, or else the whole completion."""
        data = self._fields(self._checked(action))
        self._turns += 1
        shown, reward, ended = "", 0.0, False
        if data is not None:
            try:
                shown, reward, ended = self._asked("step", data)
            except ServerError as error:
                if error.code != _UNREAD:
                    raise
                data = None
        if data is None:
            wanted = f"a value of the type {self._field.type}" if self._field.name else "a JSON object"
            shown = f"That is no action. Write {wanted} in <action></action>."
        cut = not ended and self._turns >= self._most_turns
        self._open = not (ended or cut)
        info = {"readable": data is not None, "success": ended and reward >= self._success}
        return shown, reward, ended, cut, info

    def close(self) -> None:
        self._session = None
        self._open = False
        self._connection.close()

    def _fields(self, completion: str) -> dict[str, Any] | None:
        text = stated_action(completion)
        try:
            value = text if self._field.type == "string" else json.loads(text)
            json.dumps(value, ensure_ascii=False).encode()  # half of a character cannot be sent
        except (ValueError, RecursionError):
            return None
        if self._field.name:
            return {self._field.name: value}
        return value if isinstance(value, dict) else None

    def _started(self, data: Mapping[str, Any]) -> str:
        until = time.monotonic() + _ROOM
        while True:
            try:
                return self._asked("reset", data)[0]
            except ServerError as error:
                if error.code != _FULL:
                    raise
                self.close()
                if time.monotonic() > until:
                    room = "Give it room for every rollout of a step, and some more: max_concurrent_envs"
                    raise ServerError(f"{error.message} {room}", _FULL) from error
                time.sleep(_ROOM / 10)

    def _asked(self, kind: str, data: Mapping[str, Any]) -> tuple[str, float, bool]:
        from websockets.exceptions import ConnectionClosed, WebSocketException
        from websockets.sync.client import connect

        try:
            if self._session is None:
                address = f"ws{self._url.removeprefix('http')}/ws"
                opened = connect(address, open_timeout=self._seconds, max_size=_LARGEST, proxy=None)
                self._session = self._connection.enter_context(opened)
            with suppress(ConnectionClosed):  # a server that refuses says why, then closes: the reason can be received
                self._session.send(json.dumps({"type": kind, "data": dict(data)}))
            received = self._session.recv(timeout=self._seconds)
        except (WebSocketException, OSError) as error:
            self.close()
            raise TransientError(f"the server at {self._url} broke off: {type(error).__name__}: {error}") from error
        try:
            answer = json.loads(received)
            content = answer.get("data") or {}
            if answer.get("type") == "error":
                raise ServerError(str(content.get("message")), str(content.get("code")))
            reward = float(0.0 if content.get("reward") is None else content["reward"])
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            self.close()
            raise ServerError(
                f"{received[:200]!r}, which is not an answer to '{kind}'", type(error).__name__
            ) from error
        return self._text(content.get("observation") or {}), reward, bool(content.get("done"))

    def _text(self, observation: Any) -> str:
        if not isinstance(observation, Mapping):
            return str(observation)
        if self._show is not None:
            if self._show not in observation:
                have = ", ".join(observation) or "nothing"
                raise OptionError(f"the observation has no field '{self._show}'; it has: {have}.")
            return _written(observation[self._show])
        shown = {name: value for name, value in observation.items() if value is not None}
        if not shown.get("metadata"):  # every server of openenv 0.10 sends it
            shown.pop("metadata", None)
        return "\n".join(f"{name}: {_written(value)}" for name, value in shown.items())


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
