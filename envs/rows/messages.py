"""Reads the chat messages of a row, in OpenAI's or ShareGPT's layout, as chat templates take them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grpo.envs.datasets.checks import checked_text, kind
from grpo.plugins.errors import DatasetError

_ROLES = ("system", "user", "assistant", "tool")
_SHAREGPT = {"human": "user", "gpt": "assistant"}  # what its key `from` holds; other names are those of roles


def read_messages(given: Any, what: str, system: str | None = None) -> list[dict[str, Any]]:
    """Returns the messages of a prompt, text or a list, with `system` in the place of theirs ("" sends none)."""
    if isinstance(given, str):
        messages = [{"role": "user", "content": checked_text(given, what)}]
    elif isinstance(given, Sequence) and not isinstance(given, bytes) and given:
        messages = []
        for number, message in enumerate(given, start=1):
            place = f"{what}, message {number}"
            role = _role(message, place)
            if role == "system" and (system is not None or not (message.get("content") or message.get("value"))):
                continue
            messages.append(_message(message, role, place))
    else:
        raise DatasetError(f"{what} must be text or a list of messages, found {kind(given)}.")
    if messages and messages[-1]["role"] == "assistant":
        raise DatasetError(
            f"{what} ends with a message of the assistant, which the policy is to write itself. Leave it out; to warm "
            "up on it, put it into a column of its own and name that with the option 'demonstration'."
        )
    if not any(message["role"] == "user" for message in messages):
        raise DatasetError(f"{what} has no message of the user. Add one.")
    return [{"role": "system", "content": system}, *messages] if system else messages


def _role(message: Any, what: str) -> str:
    if isinstance(message, Mapping):
        if isinstance(role := message.get("role"), str):
            if role not in _ROLES:
                raise DatasetError(f"{what}: no role '{role}'. Choose one of: {', '.join(_ROLES)}.")
            return role
        if isinstance(speaker := message.get("from"), str):
            role = _SHAREGPT.get(speaker, speaker)
            if role not in _ROLES:
                names = ", ".join((*_SHAREGPT, *_ROLES))
                raise DatasetError(f"{what}: nobody is named '{speaker}' in 'from'. Choose one of: {names}.")
            return role
    raise DatasetError(f'{what}: write {{"role": "user", "content": "..."}}, found {kind(message)}.')


def _message(message: Mapping[Any, Any], role: str, what: str) -> dict[str, Any]:
    """Removes keys that a table filled up with null."""
    given = {str(key): value for key, value in message.items() if value is not None}
    if "role" not in given:
        given = {("content" if key == "value" else key): value for key, value in given.items() if key != "from"}
    calls = given.get("tool_calls")
    if calls is not None:
        given.pop("tool_calls")
        if calls:  # a table has an empty list in messages without calls
            given["tool_calls"] = _calls(calls, what)
    optional = role == "tool" or "tool_calls" in given
    if "content" not in given and not optional:
        raise DatasetError(f'{what}: write {{"role": "{role}", "content": "..."}}; it has no content.')
    content = given.get("content", "")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = "".join(_part(part, what) for part in content)
    return {**given, "role": role, "content": checked_text(content, what, empty=optional)}


def _part(part: Any, what: str) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise DatasetError(f"{what} has a part that is no text. Only texts can be shown to the policy.")


def _calls(calls: Any, what: str) -> list[dict[str, Any]]:
    """Arguments become objects: OpenAI writes them as a text of JSON."""
    if not isinstance(calls, Sequence) or not all(isinstance(call, Mapping) for call in calls):
        raise DatasetError(f"{what}: 'tool_calls' must be a list of objects, found {kind(calls)}.")
    read = []
    for call in calls:
        inner = call.get("function", call)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise DatasetError(
                f'{what}: write a tool call as {{"type": "function", "function": {{"name": "...", "arguments": '
                "{...}}}."
            )
        plain = {str(key): value for key, value in inner.items() if value is not None}
        if "arguments" in plain:
            plain["arguments"] = _arguments(plain["arguments"])
        outer = {str(key): value for key, value in call.items() if value is not None}
        read.append({**outer, "function": plain} if "function" in call else plain)
    return read


def _arguments(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        parsed = json.loads(given)
    except (ValueError, RecursionError):
        return given
    return parsed if isinstance(parsed, dict) else given
