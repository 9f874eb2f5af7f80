"""Reads the calls of tools in what the policy wrote, and writes their answers as its chat template does.

Theory of operation. Calls are read by the tokenizer's `response_template`, or TRL's for a known chat template. The
sampled tokens stay, and only the text after them is rendered, with the answers as messages of the role `tool`, as in
core/rollout/turns/chat.py. Before anything is loaded, a call is written by the template and read back; a tokenizer with
which that fails is refused. A call that cannot be read or made is answered with the reason, and those beside it are
made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo.core.env.prompts import ids_between, special_tokens, tokens_of
from grpo.core.env.tools import Schema, ToolCall, answering, calling, checked
from grpo.core.policy.chat_template import without_variables
from grpo.core.rollout.turns.chat import rendered_text
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ASKED: dict[str, Any] = {"role": "user", "content": "USER0USER"}
KEY, VALUE = "KEY0KEY", "VALUE0VALUE"
ANSWERS = "ANSWER{}ANSWER"
MOST_CALLS = 16  # in one turn


@dataclass(frozen=True, slots=True)
class ToolFormat:
    schemas: tuple[Schema, ...]
    opening: str  # how the template begins a message that the policy is to write
    end: str  # the token with which the template ends a message that asks for a call; "" where it has none
    template: Mapping[str, Any]  # what reads a message, for `parse_response`
    most: int = MOST_CALLS  # how many calls one message may hold; some templates take a single one

    def read(self, tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[list[ToolCall], str]:
        """Returns the calls of a turn, at least one of which names a tool, and the text beside them."""
        try:
            message = self._read(tokenizer, ids)
            asked = (message.get("tool_calls") or ())[: self.most]
        except Exception:  # the policy writes anything, and the parser has no error of its own: it is plain text then
            return [], ""
        calls = [checked(_call(call), self.schemas) for call in asked]
        return calls if any(call.name for call in calls) else [], str(message.get("content") or "").strip()

    def calls(self, tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[ToolCall]:
        return self.read(tokenizer, ids)[0]

    def ids(
        self, tokenizer: PreTrainedTokenizerBase, calls: Sequence[ToolCall], answers: Sequence[str], last: int
    ) -> list[int]:
        """Returns the tokens from a turn with calls, whose last token is given, to the next one; each has an answer."""
        known = [schema["function"]["name"] for schema in self.schemas]
        # A template may write the name before the answer, and a name that the policy made up may spell anything.
        named = [ToolCall(call.name if call.name in known else known[0], {}) for call in calls]
        following = answering(named, answers)
        return ids_between(tokenizer, following, lambda messages: after_calls(tokenizer, named, messages), last)

    def text(self, tokenizer: PreTrainedTokenizerBase, call: ToolCall) -> str:
        """Returns a call as the policy is to write it, without the end of the message."""
        written = _rendered(tokenizer, [ASKED, calling("", [call])])
        begun = _rendered(tokenizer, [ASKED], generate=True)
        # A template that opens the thinking of a message to be written may leave it out of one with a call.
        same = [ours == other for ours, other in zip(written, begun, strict=False)]
        return written[[*same, False].index(False) : _end(tokenizer, written, call.name)]

    def _read(self, tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> Mapping[str, Any]:
        ended = tokenizer.decode(list(ids))
        if not ended.endswith(self.end):  # cut, or ended by another of the model's end tokens
            last = next((token for token in special_tokens(tokenizer) if ended.endswith(token)), "")
            ended = ended.removesuffix(last) + self.end
        read: Any = tokenizer.parse_response(
            ended, dict(self.template), prefix=self.opening, tools=[dict(schema) for schema in self.schemas]
        )
        return read or {}


def tool_format(tokenizer: PreTrainedTokenizerBase, schemas: tuple[Schema, ...]) -> ToolFormat:
    """Finds how the chat template writes tools, and gives the tokenizer what reads calls. Raises UsageError."""
    name = schemas[0]["function"]["name"]
    if name not in _rendered(tokenizer, [ASKED], tools=schemas):
        raise _refused("does not show tools to the policy")
    begun, asked = _rendered(tokenizer, [ASKED], generate=True), _rendered(tokenizer, [ASKED])
    probe = ToolCall(name, {KEY: VALUE})
    written = _rendered(tokenizer, [ASKED, calling("", [probe])])
    if not all(part in written for part in (name, KEY, VALUE)):
        raise _refused("leaves out the calls of earlier turns")
    if ANSWERS not in after_calls(tokenizer, [probe], answering([probe], [ANSWERS])):
        raise _refused("leaves out the answers of tools")
    opening = begun[len(asked) :] if begun.startswith(asked) else ""
    at = _end(tokenizer, written, name)
    ends = (tokenizer.eos_token, *special_tokens(tokenizer))
    end = next((token for token in ends if written.startswith(token, at)), "")
    most = MOST_CALLS if _takes_two(tokenizer, probe) else 1
    for template in _response_templates(tokenizer):
        form = ToolFormat(schemas, opening, end, _lenient(template), most)
        if form.calls(tokenizer, tokens_of(tokenizer, form.text(tokenizer, probe), plain=False)) == [probe]:
            tokenizer.response_template = template
            return form
    if getattr(tokenizer, "response_template", None) is None:
        raise UsageError(
            "the environment offers tools, but how this model writes a call is unknown: its tokenizer has no "
            "response_template, and TRL does not know its chat template. Use a model of a family that TRL knows "
            "(Qwen2.5, Qwen3, Llama 3.1, LFM2, ...), or set response_template in its tokenizer_config.json."
        )
    raise UsageError(
        "the environment offers tools, but the tokenizer's response_template cannot read a call as its chat "
        "template writes it. Set one in its tokenizer_config.json that can."
    )


def _response_templates(tokenizer: PreTrainedTokenizerBase) -> Iterator[Mapping[str, Any]]:
    if own := getattr(tokenizer, "response_template", None):
        yield own
    from trl.chat_template_utils import add_response_schema

    plain = copy(tokenizer)
    if isinstance(plain.chat_template, str):
        plain.chat_template = without_variables(plain.chat_template)  # TRL knows templates by their whole text
    with suppress(ValueError):
        yield add_response_schema(plain).response_template


def after_calls(tokenizer: Any, calls: Sequence[ToolCall], following: Sequence[Any]) -> str:
    """Returns what the chat template writes after calls, first of all the answers. Raises UsageError."""
    start = [ASKED, calling("", calls)]
    before, whole = _rendered(tokenizer, start), _rendered(tokenizer, [*start, *following], generate=True)
    # What stands before the call may change once its answer follows (Qwen3 leaves out empty thinking): the call is
    # looked for by its own text, which comes as often as there are calls like it.
    last = before[before.rfind(calls[-1].name) : _end(tokenizer, before, calls[-1].name)]
    at = 0
    for _ in range(before.count(last)):
        place = whole.find(last, at)
        if place < 0:
            raise _refused("renders a call differently once its answer follows")
        at = place + len(last)
    return whole[at:]


def _takes_two(tokenizer: Any, probe: ToolCall) -> bool:
    answers = [ANSWERS.format(number) for number in range(2)]
    try:
        rest = after_calls(tokenizer, [probe] * 2, answering([probe] * 2, answers))
    except UsageError:
        return False
    return all(answer in rest for answer in answers)


def _end(tokenizer: Any, rendered: str, mark: str) -> int:
    first = rendered.rfind(mark) + len(mark)
    end = rendered.rfind(tokenizer.eos_token, first)
    if end >= 0:
        return end
    others = [rendered.rfind(token, first) for token in special_tokens(tokenizer)]
    return max([at for at in others if at >= 0], default=len(rendered))


def _lenient(template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a response template that passes on a call which is not JSON as text, so that it spoils no other."""
    fields = dict(template["fields"])
    calls = fields.get("tool_calls")
    if calls is not None and calls.get("content") == "json":
        arguments = {**(calls.get("content_args") or {}), "allow_non_json": True}
        fields["tool_calls"] = {**calls, "content_args": arguments}
    return {**template, "fields": fields}


def _call(asked: Any) -> ToolCall:
    function = asked.get("function", asked) if isinstance(asked, Mapping) else asked
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        return ToolCall("", {}, f"this is not a call, which is an object with a name and arguments: {function!s}")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    if not isinstance(arguments or {}, dict):
        return ToolCall(name, {}, f"the arguments of '{name}' are no object by name: {arguments!s}")
    return ToolCall(name, arguments or {})


def _refused(what: str) -> UsageError:
    return UsageError(
        f"the environment offers tools, and the model's chat template {what}. Use a model that was taught to use "
        "tools, or set the tokenizer's chat_template to one that can."
    )


def _rendered(tokenizer: Any, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
    return rendered_text(tokenizer, messages, refused=_refused, **options)
