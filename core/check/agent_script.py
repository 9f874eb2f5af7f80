"""Answers an agent's requests without a model: a call of one of its tools, then the end of the task, as it says."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from grpo.core.gateway.conversation import Ask, ChatTurn, Finish, Refused, Reply, ToolUse, refuse_other_model

MODEL = "policy"  # as in a run
FINAL = "The task is done."
MOST_CALLS = 12
"""How many requests an episode has before it is ended."""
ENDED = "episode_ended"
"""The code of what is refused from then on."""
_SHELLS = ("command", "cmd", "script", "code")
_ENDS = re.compile(r"final|finish|submit|complete|done", re.IGNORECASE)
_END_COMMAND = re.compile(r"echo '?[A-Z][A-Z_]{7,}'?")
_END_CALL = re.compile(r"\bfinal_answer\(.*</code>", re.DOTALL)
_FENCE = re.compile(r"```([\w-]+)\n")
_EXAMPLES = {"string": "text", "integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}


@dataclass(slots=True)
class Arrival:
    """A request as it came over HTTP."""

    api: str  # the last part of its path, "completions", "responses" or "messages"
    size: int = 0  # bytes of its body


ARRIVED: ContextVar[Arrival] = ContextVar("ARRIVED")
"""The request whose answer is being made."""


@dataclass(slots=True)
class Asked:
    """A request and its answer."""

    arrival: Arrival
    ask: Ask
    replies: tuple[Reply, ...]

    def delivered(self) -> None:
        """Does nothing: no check asks whether the answer reached the agent."""


@dataclass(slots=True)
class ScriptedDesk:
    """Answers the requests of several episodes, each by its script."""

    markers: Mapping[str, str]  # the key of each episode, and what its shell tool is to print
    model: str = MODEL
    asked: dict[str, list[Asked]] = field(default_factory=dict)  # the requests of each episode
    refused: dict[str, list[Refused]] = field(default_factory=dict)  # the requests that got no answer

    def known(self, key: str) -> bool:
        """Returns whether an episode has this key."""
        return key in self.markers

    async def ask(self, key: str, ask: Ask) -> Asked:
        """Answers a request. Raises Refused if it is for another model, or the episode had too many."""
        refuse_other_model(ask, self.model)
        asked = self.asked.setdefault(key, [])
        if len(asked) >= MOST_CALLS:
            raise Refused(400, f"The episode has ended: it had {MOST_CALLS} requests.", ENDED)
        reply = _reply(ask, self.markers[key])
        asked.append(Asked(ARRIVED.get(), ask, (reply,) * ask.count))
        return asked[-1]

    def count(self, key: str, ask: Ask) -> int:
        """Returns about how many tokens a request has."""
        return sum(len(turn.text) for turn in ask.messages) // 4

    def note(self, key: str, refused: Refused) -> None:
        """Notes a request that got no answer."""
        self.refused.setdefault(key, []).append(refused)


def _reply(ask: Ask, marker: str) -> Reply:
    tools = {tool["function"]["name"]: tool["function"] for tool in ask.tools}
    ends = [name for name in tools if _ENDS.search(name)]
    working = [name for name in tools if name not in ends]
    texts = "\n".join(turn.text for turn in ask.messages)
    command = _END_COMMAND.search(texts)
    begun = any(turn.role == "assistant" for turn in ask.messages)
    shells = [name for name in working if _shell_argument(tools[name])]
    if working and not begun:
        name = (shells or working)[0]
        return _with_call(name, _arguments(tools[name], f"echo {marker}"))
    if ends:
        return _with_call(ends[0], _arguments(tools[ends[0]], FINAL))
    if command and shells:
        return _with_call(shells[0], _arguments(tools[shells[0]], command[0]))
    if command:
        fence = _FENCE.search(texts)
        return _reply_of(f"{FINAL}\n\n```{fence[1] if fence else 'bash'}\n{command[0]}\n```")
    if _END_CALL.search(texts):  # the code that such agents read stands in the tags that their prompt shows
        return _reply_of(f"<code>\nfinal_answer({FINAL!r})\n</code>")
    return _reply_of(FINAL)


def _shell_argument(tool: Mapping[str, Any]) -> str:
    properties = tool.get("parameters", {}).get("properties", {})
    return next((name for name in _SHELLS if name in properties), "")


def _arguments(tool: Mapping[str, Any], text: str) -> dict[str, Any]:
    schema = tool.get("parameters", {})
    properties, shell = schema.get("properties", {}), _shell_argument(tool)
    arguments: dict[str, Any] = {}
    for name, value in properties.items():
        if name != shell and name not in schema.get("required", ()):
            continue
        kind = value.get("type", "string")
        kind = next((each for each in kind if each != "null"), "string") if isinstance(kind, list) else kind
        if name == shell:
            arguments[name] = ["bash", "-c", text] if kind == "array" else text
        elif value.get("enum"):
            arguments[name] = value["enum"][0]
        elif kind in ("string", "any"):
            arguments[name] = text
        else:
            arguments[name] = _EXAMPLES.get(kind, "text")
    return arguments


_numbers = itertools.count(1)


def _with_call(name: str, arguments: Mapping[str, Any]) -> Reply:
    return _reply_of("", ToolUse(name, arguments, f"call_{next(_numbers)}"))


def _reply_of(text: str, *calls: ToolUse) -> Reply:
    finish: Finish = "calls" if calls else "stop"
    return Reply(ChatTurn("assistant", text, calls), finish, 100, 20)
