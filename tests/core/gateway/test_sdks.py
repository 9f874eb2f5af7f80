"""The SDKs of OpenAI and Anthropic against the gateway: what they read, and that what they send back is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import openai
import pytest
from patience import wait_for
from reply_samples import REPLIES
from scripted_desk import KEY, MODEL, ScriptedDesk, said, served

from grpo.core.gateway.conversation import ChatTurn, Refused, Reply, ToolUse

try:
    import anthropic
except ModuleNotFoundError:
    anthropic = None

pytestmark = pytest.mark.slow

USER: dict[str, Any] = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOL = {"type": "function", "function": {"name": "bash", "description": "Runs.", "parameters": SCHEMA}}
CALLS = (ToolUse("bash", {"command": "ls"}), ToolUse("bash", {"command": "pwd"}), ToolUse("bash", {"command": "id"}))


class Served:
    """A gateway with a desk whose script tests change, and the clients of both SDKs."""

    def __init__(self, url: str, desk: ScriptedDesk, stack: ExitStack, key: str = KEY) -> None:
        self.desk = desk
        self.openai = stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key=key))
        self._anthropic = anthropic and stack.enter_context(anthropic.Anthropic(base_url=url, api_key=key))

    def script(self, *replies: Any) -> None:
        """Sets what is answered from now on."""
        self.desk.script = replies
        self.desk.asked.clear()
        self.desk.answers.clear()

    @property
    def anthropic(self) -> Any:
        """The client of Anthropic's SDK."""
        return self._anthropic or pytest.skip("needs Anthropic's SDK: pip install anthropic")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    desk = ScriptedDesk()
    with served(desk) as url, ExitStack() as stack:
        yield Served(url, desk, stack)


# Each asks once and returns the history with the answer's own objects, as a program appends them.
def chat_whole(gateway: Served) -> list[Any]:
    answer = gateway.openai.chat.completions.create(model=MODEL, messages=[USER])
    return [USER, answer.choices[0].message]


def chat_dumped(gateway: Served) -> list[Any]:
    return [USER, chat_whole(gateway)[1].model_dump(exclude_none=True)]


def chat_streamed(gateway: Served) -> list[Any]:
    with gateway.openai.chat.completions.stream(model=MODEL, messages=[USER]) as stream:
        return [USER, stream.get_final_completion().choices[0].message]


def responses_whole(gateway: Served) -> list[Any]:
    return [USER, *gateway.openai.responses.create(model=MODEL, input=[USER]).output]


def responses_streamed(gateway: Served) -> list[Any]:
    with gateway.openai.responses.stream(model=MODEL, input=[USER]) as stream:
        final = [event.response for event in stream if event.type in ("response.completed", "response.incomplete")]
    return [USER, *final[0].output]


def messages_whole(gateway: Served) -> list[Any]:
    answer = gateway.anthropic.messages.create(model=MODEL, max_tokens=9, messages=[USER])
    return [USER, {"role": "assistant", "content": answer.content}]


def messages_streamed(gateway: Served) -> list[Any]:
    with gateway.anthropic.messages.stream(model=MODEL, max_tokens=9, messages=[USER]) as stream:
        return [USER, {"role": "assistant", "content": stream.get_final_message().content}]


def ask_chat(gateway: Served, history: list[Any]) -> None:
    gateway.openai.chat.completions.create(model=MODEL, messages=history)


def ask_responses(gateway: Served, history: list[Any]) -> None:
    gateway.openai.responses.create(model=MODEL, input=history)


def ask_messages(gateway: Served, history: list[Any]) -> None:
    gateway.anthropic.messages.create(model=MODEL, max_tokens=9, messages=history)


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (chat_whole, ask_chat),
        (chat_dumped, ask_chat),
        (chat_streamed, ask_chat),
        (responses_whole, ask_responses),
        (responses_streamed, ask_responses),
        (messages_whole, ask_messages),
        (messages_streamed, ask_messages),
    ],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")  # parsed objects that are sent back
def test_an_answer_that_a_program_sends_back_is_the_turn_that_was_sampled(
    gateway: Served, first: Callable[[Served], list[Any]], then: Callable[[Served, list[Any]], None], reply: Reply
) -> None:
    if reply.finish == "length" and first is chat_streamed:
        pytest.skip("the SDK raises where an answer was cut")
    gateway.script(reply)
    then(gateway, [*first(gateway), USER])
    user = ChatTurn("user", "hi")
    assert gateway.desk.last.messages == (user, reply.turn, user)
    assert wait_for(lambda: [answer.deliveries for answer in gateway.desk.answers] == [1, 1])


def test_chat_with_parallel_calls(gateway: Served) -> None:
    gateway.script(said("Look.", *CALLS), said("done"))
    history: list[Any] = [USER]
    message = gateway.openai.chat.completions.create(model=MODEL, messages=history, tools=[TOOL]).choices[0].message
    history.append(message)
    history += [
        {"role": "tool", "tool_call_id": call.id, "content": call.function.arguments}
        for call in message.tool_calls[::-1]
    ]
    final = gateway.openai.chat.completions.create(model=MODEL, messages=history, tools=[TOOL])
    assert final.choices[0].message.content == "done"
    assert [turn.text for turn in gateway.desk.last.messages[2:]] == [
        '{"command": "ls"}',
        '{"command": "pwd"}',
        '{"command": "id"}',
    ]
    assert gateway.desk.last.tools == (TOOL,)


def test_chat_with_two_answers(gateway: Served) -> None:
    replies = iter([said("a"), said("b")] * 2)
    gateway.script(lambda ask: next(replies))
    whole = gateway.openai.chat.completions.create(model=MODEL, messages=[USER], n=2)
    assert [choice.message.content for choice in whole.choices] == ["a", "b"]
    assert whole.usage.completion_tokens == 14
    with gateway.openai.chat.completions.stream(model=MODEL, messages=[USER], n=2) as stream:
        assert [choice.message.content for choice in stream.get_final_completion().choices] == ["a", "b"]


def test_chat_streams_usage_where_it_is_asked_for(gateway: Served) -> None:
    gateway.script(said("a"))
    options = {"include_usage": True}
    stream = gateway.openai.chat.completions.create(model=MODEL, messages=[USER], stream=True, stream_options=options)
    *chunks, last = stream
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert (last.usage.total_tokens, last.choices) == (12, [])


def test_responses_with_parallel_calls(gateway: Served) -> None:
    gateway.script(said("Look.", *CALLS), said("done"))
    tools: list[Any] = [{"type": "function", **TOOL["function"], "strict": False}]  # type: ignore[dict-item]
    history: list[Any] = [USER]
    output = gateway.openai.responses.create(model=MODEL, input=history, tools=tools).output
    history += output
    history += [
        {"type": "function_call_output", "call_id": item.call_id, "output": item.arguments}
        for item in output[::-1]
        if item.type == "function_call"
    ]
    final = gateway.openai.responses.create(model=MODEL, input=history, tools=tools)
    assert final.output_text == "done"
    assert [turn.text for turn in gateway.desk.last.messages[2:]] == [
        '{"command": "ls"}',
        '{"command": "pwd"}',
        '{"command": "id"}',
    ]
    assert gateway.desk.last.tools == (TOOL,)


def test_messages_with_parallel_calls(gateway: Served) -> None:
    gateway.script(said("Look.", *CALLS), said("done", stopped_by="END"))
    tools = [{"name": "bash", "description": "Runs.", "input_schema": SCHEMA}]
    settings = {"model": MODEL, "max_tokens": 9, "tools": tools, "system": "Be brief.", "stop_sequences": ["END"]}
    history: list[Any] = [USER]
    answer = gateway.anthropic.messages.create(messages=history, **settings)
    assert answer.stop_reason == "tool_use"
    history.append({"role": "assistant", "content": answer.content})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": block.input["command"]}
        for block in answer.content
        if block.type == "tool_use"
    ]
    history.append({"role": "user", "content": results[::-1]})
    with gateway.anthropic.messages.stream(messages=history, **settings) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence, final.content[0].text) == ("stop_sequence", "END", "done")
    assert [turn.text for turn in gateway.desk.last.messages[3:]] == ["ls", "pwd", "id"]
    assert gateway.desk.last.tools == (TOOL,)
    assert gateway.anthropic.messages.count_tokens(model=MODEL, messages=[USER]).input_tokens == 1


def test_models(gateway: Served) -> None:
    assert [model.id for model in gateway.openai.models.list()] == [MODEL]
    assert [model.id for model in gateway.anthropic.models.list()] == [MODEL]
    assert gateway.openai.models.retrieve(MODEL).id == MODEL


@pytest.mark.parametrize("stream", [False, True])
def test_the_sdks_raise_what_the_desk_refuses_once(gateway: Served, stream: bool) -> None:
    """Neither repeats a request: the desk is asked once by each API."""
    gateway.script(Refused(404, "There is no model 'x'.", "model_not_found"))
    with pytest.raises(openai.NotFoundError, match="There is no model 'x'"):
        gateway.openai.chat.completions.create(model="x", messages=[USER], stream=stream)
    with pytest.raises(openai.NotFoundError, match="There is no model 'x'"):
        gateway.openai.responses.create(model="x", input="hi", stream=stream)
    client = gateway.anthropic
    with pytest.raises(anthropic.NotFoundError, match="There is no model 'x'"):
        client.messages.create(model="x", max_tokens=9, messages=[USER], stream=stream)
    assert len(gateway.desk.asked) == 3


def test_the_sdks_raise_a_late_refusal_once() -> None:
    desk = ScriptedDesk([Refused(400, "No room.", "context_length_exceeded")])
    with served(desk, pause=0.001) as url, ExitStack() as stack:
        gateway = Served(url, desk, stack)
        desk.delay = 0.05
        with pytest.raises(openai.APIError, match="No room"):
            [*gateway.openai.chat.completions.create(model=MODEL, messages=[USER], stream=True)]
        with pytest.raises(openai.APIError, match="No room"):
            [*gateway.openai.responses.create(model=MODEL, input="hi", stream=True)]
        client = gateway.anthropic
        with pytest.raises(anthropic.APIError, match="No room"):
            [*client.messages.create(model=MODEL, max_tokens=9, messages=[USER], stream=True)]
    assert len(desk.asked) == 3


def test_a_wrong_key_is_an_authentication_error() -> None:
    with served(ScriptedDesk()) as url, ExitStack() as stack:
        gateway = Served(url, ScriptedDesk(), stack, key="wrong")
        with pytest.raises(openai.AuthenticationError, match="No episode has this key"):
            gateway.openai.responses.create(model=MODEL, input="hi")
        client = gateway.anthropic
        with pytest.raises(anthropic.AuthenticationError, match="No episode has this key"):
            client.messages.create(model=MODEL, max_tokens=9, messages=[USER])
