"""Turns conversations into token ids; a continued conversation keeps the sampled ids and tokenises only new text.

What the policy said is never rendered again: the text behind it is found with a mark, or the same calls, in its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grpo.core.env.prompts import encode_prompts, ids_between
from grpo.core.env.tools import Schema, ToolCall
from grpo.core.gateway.conversation import ChatTurn, ToolUse
from grpo.core.policy.chat_template import texts_of
from grpo.core.rollout.turns.chat import after_text
from grpo.core.rollout.turns.tools import ToolFormat, after_calls, tool_format

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.plugins.types import Message

MOST_FORMATS = 64  # sets of tools whose form is remembered
MOST_WHOLE = 64  # conversations whose tokens are remembered: the rollouts of a group begin with the same one


class Splice:
    """Renders and reads the messages of one policy; for one thread, as its tokenizer is."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._formats: dict[str, ToolFormat] = {}
        self._whole: dict[str, list[int]] = {}

    def whole(self, messages: Sequence[ChatTurn], tools: Sequence[Schema]) -> list[int]:
        """Returns the tokens of a conversation up to the policy's next message. Raises UsageError."""
        if tools:
            self.format(tools)  # refuses what could not be read
        asked = as_messages(messages)
        key = json.dumps([asked, list(tools)])
        if key not in self._whole:
            if len(self._whole) >= MOST_WHOLE:
                del self._whole[next(iter(self._whole))]
            self._whole[key] = encode_prompts(self._tokenizer, [asked], tools)[0]
        return self._whole[key]

    def between(
        self, answer: ChatTurn, new: Sequence[ChatTurn], tools: Sequence[Schema], before: Sequence[ChatTurn], last: int
    ) -> list[int]:
        """Returns the tokens from the end of what was sampled to the start of the policy's next message.

        `answer`: what was sampled, as the program got it. `before`: the messages before that; answers of tools may be
        to calls in them. `last`: the last sampled token, not repeated if it ends a message. Raises UsageError if the
        chat template refuses the messages or renders what came before differently.
        """
        messages = as_messages([*before, answer, *new])[len(before) + 1 :]
        known = [schema["function"]["name"] for schema in tools]
        # A name that the policy made up may spell anything, which the template may write otherwise.
        calls = [ToolCall(call.name if call.name in known or not known else known[0], {}) for call in answer.calls]

        def rest(marked: Sequence[Any]) -> str:
            if calls:
                return after_calls(self._tokenizer, calls, marked)
            return after_text(self._tokenizer, marked)

        return ids_between(self._tokenizer, messages, rest, last)

    def read(self, ids: Sequence[int], tools: Sequence[Schema], name: str) -> ChatTurn:
        """Returns what the policy said, with the calls of tools that it asks for; their ids begin with `name`."""
        calls, text = self.format(tools).read(self._tokenizer, ids) if tools else ([], "")
        asked = [call for call in calls if call.name]
        if not asked:
            return ChatTurn("assistant", texts_of(self._tokenizer, [ids])[0].strip())
        uses = [ToolUse(call.name, call.arguments, f"{name}_{number}") for number, call in enumerate(asked)]
        return ChatTurn("assistant", text, tuple(uses))

    def format(self, tools: Sequence[Schema]) -> ToolFormat:
        """Returns how calls of these tools are written. Raises UsageError: the chat template has no form for them."""
        key = json.dumps(list(tools), sort_keys=True)
        if key not in self._formats:
            if len(self._formats) >= MOST_FORMATS:
                self._formats.clear()
            self._formats[key] = tool_format(self._tokenizer, tuple(tools))
        return self._formats[key]

    def cut(self, ids: Sequence[int], stops: Sequence[str]) -> tuple[int, str] | None:
        """Returns after how many tokens the first of some texts is complete, and which, or None."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        present = [stop for stop in stops if stop and stop in text]
        if not present:
            return None
        low, high = 1, len(ids)  # the fewest tokens whose text holds one of them
        while low < high:
            middle = (low + high) // 2
            begun = self._tokenizer.decode(list(ids[:middle]), skip_special_tokens=True)
            low, high = (low, middle) if any(stop in begun for stop in present) else (middle + 1, high)
        begun = self._tokenizer.decode(list(ids[:low]), skip_special_tokens=True)
        return low, min((stop for stop in present if stop in begun), key=begun.find)


def as_messages(turns: Sequence[ChatTurn]) -> list[Message]:
    """Returns messages as chat templates take them; the answer of a tool has the name of its call."""
    names: dict[str, str] = {}
    messages: list[Any] = []
    for turn in turns:
        message: dict[str, Any] = {"role": turn.role, "content": turn.text}
        if turn.calls:
            names |= {call.id: call.name for call in turn.calls if call.id}
            message["tool_calls"] = [_asked(call) for call in turn.calls]
        if turn.role == "tool":
            message["name"] = names.get(turn.answers, "")
            message["tool_call_id"] = turn.answers
        messages.append(message)
    return messages


def _asked(call: ToolUse) -> Mapping[str, Any]:
    return {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": dict(call.arguments)}}
