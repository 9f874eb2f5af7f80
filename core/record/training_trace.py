"""Writes an agent's rollout as OpenEnv's TrainingTrace v1, and reads one as an agent's calls.

A trace holds the calls that train, with tokens, log-probabilities and a mask; our data is in the metadata, as `grpo`.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from grpo.core.record.agent_calls import AgentRecord, RecordedCall, RecordedTurn, RecordedUse
from grpo.core.record.browse import Rollout

if TYPE_CHECKING:
    from pydantic import TypeAdapter

VERSION = 1
OURS = "grpo"  # in the metadata of a turn
STRICT: Any = {"strict": True, "extra": "forbid"}
BEGINS = "a new conversation"  # a call that goes on from none, and nobody says why


@dataclass(frozen=True, slots=True)
class TraceTurn:
    """A call, as the schema has it."""

    __pydantic_config__: ClassVar[Any] = STRICT

    node_id: str
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    per_token_logps: list[float]
    loss_mask: list[int]
    request: dict[str, Any] = field(default_factory=dict)
    response: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def trained(self) -> list[tuple[int, float]]:
        """The sampled tokens that train, with their log-probabilities."""
        mask = self.loss_mask[len(self.prompt_token_ids) :]
        sampled = zip(self.completion_token_ids, self.per_token_logps, mask, strict=True)
        return [(token, logprob) for token, logprob, trains in sampled if trains]

    @property
    def ours(self) -> Mapping[str, Any]:
        """Our own export's data on the rollout; empty in the trace of another program."""
        own = self.metadata.get(OURS)
        return own if isinstance(own, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls of one rollout."""

    __pydantic_config__: ClassVar[Any] = STRICT

    turns: list[TraceTurn]
    schema_version: Literal[1] = 1


def trace_of(step: int, rollout: Rollout, record: AgentRecord, ids: Sequence[int], nats: Sequence[float]) -> Trace:
    """Returns the trace of a recorded rollout. Raises ValueError."""
    prompts: list[list[int]] = []
    sampled: list[Sequence[int]] = []
    answers: list[list[RecordedTurn]] = []
    turns: list[TraceTurn] = []
    for place, call in enumerate(record.tree):
        above = call.parent
        before = [] if above is None else [*prompts[above], *sampled[above]]
        prompts.append([*before, *call.new_ids])
        own = slice(0, 0) if call.at is None else slice(call.at, call.at + call.sampled_tokens)
        sampled.append(call.ids if call.at is None else ids[own])
        answered = [] if above is None else [*answers[above], record.tree[above].said or RecordedTurn("assistant", "")]
        answers.append([*answered, *call.new])
        if (len(prompts[-1]), len(sampled[-1])) != (call.prompt_tokens, call.sampled_tokens):
            raise ValueError("its record does not hold the token ids of its prompts")
        if call.at is None:
            continue
        if not all(math.isfinite(value) for value in nats[own]):
            raise ValueError("a log-probability is not known")
        finish = "tool_calls" if call.finish == "calls" else call.finish
        *asked, answer = chat([*answers[-1], call.said or RecordedTurn("assistant", "")])
        turns.append(
            TraceTurn(
                node_id=f"call-{place}",
                prompt_token_ids=prompts[-1],
                completion_token_ids=list(sampled[-1]),
                per_token_logps=[min(value, 0.0) for value in nats[own]],
                loss_mask=[0] * len(prompts[-1]) + [1] * len(sampled[-1]),
                request={"messages": asked},
                response={"choices": [{"message": answer, "finish_reason": finish}]},
                metadata={
                    "index": place,
                    "parent": above,
                    "begins": call.root,
                    "thread": call.thread,
                    OURS: _ours(step, rollout, whole=not turns),
                },
            )
        )
    return Trace(turns)


def read_trace(values: Mapping[str, Any]) -> Trace:
    """Returns a trace that was read as JSON. Raises ValueError, which says where, if it is not of the schema."""
    from pydantic import ValidationError

    try:
        trace = _form().validate_json(json.dumps(values))  # strict of Python is stricter than of JSON
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"it is no TrainingTrace of version {VERSION}: {where}: {first['msg']}") from None
    names = [turn.node_id for turn in trace.turns]
    if len({*names}) != len(names) or "" in names:
        raise ValueError("it is no TrainingTrace: two of its turns have one node_id, or one has none")
    for turn in trace.turns:
        if wrong := next(_wrong(turn), ""):
            raise ValueError(f"it is no TrainingTrace: {wrong} in turn '{turn.node_id}'")
    if not trace.turns:
        raise ValueError("it has no turns")
    return trace


@cache
def _form() -> TypeAdapter[Trace]:
    from pydantic import TypeAdapter

    return TypeAdapter(Trace)


def is_trace(values: Mapping[str, Any]) -> bool:
    """Returns whether a JSON object is meant as a trace."""
    return {"schema_version", "turns"} <= values.keys() and "completion" not in values


def conversation_of(trace: Trace) -> list[RecordedTurn]:
    """Returns the longest conversation of a trace: that of its last turn which trains. Raises ValueError."""
    last = next((turn for turn in reversed(trace.turns) if turn.trained), trace.turns[-1])
    return [*_asked(last), _answered(last)]


def record_of(trace: Trace) -> AgentRecord:
    """Returns the calls of a trace as of an agent, without the end of its program. Raises ValueError."""
    calls: list[RecordedCall] = []
    at = 0
    for place, turn in enumerate(trace.turns):
        asked, above = _asked(turn), _parent(trace.turns[:place], turn)
        new = asked if above is None else asked[len(_asked(trace.turns[above])) + 1 :]
        begins = turn.metadata.get("begins")
        root = begins if isinstance(begins, str) else BEGINS if place else "first"
        trained = turn.trained
        calls.append(
            RecordedCall(
                parent=above,
                root=root if above is None else None,
                thread="",
                trains=bool(trained),
                delivered=True,
                prompt_tokens=len(turn.prompt_token_ids),
                sampled_tokens=len(turn.completion_token_ids),
                finish=_choice(turn).get("finish_reason"),
                seconds=0.0,
                ignored=(),
                new=tuple(new),
                said=_answered(turn),
                at=at if trained else None,
            )
        )
        at += len(trained)
    roots = [call.root for call in calls if call.root]
    untrained = sum(call.sampled_tokens for call in calls) - at
    counts = {name: roots.count(name) for name in roots}
    return AgentRecord(len(calls), counts, at, untrained, 0.0, 0.0, None, False, (), "", "", tuple(calls))


def chat(turns: Sequence[RecordedTurn]) -> list[dict[str, Any]]:
    """Returns messages in the form of chat completions; calls of tools are named by their places."""
    messages: list[dict[str, Any]] = []
    open_calls: deque[str] = deque()
    for place, turn in enumerate(turns):
        message: dict[str, Any] = {"role": turn.role, "content": turn.text}
        if turn.calls:
            open_calls = deque(f"call_{place}_{number}" for number in range(len(turn.calls)))
            message["tool_calls"] = [
                {
                    "id": name,
                    "type": "function",
                    "function": {"name": use.name, "arguments": json.dumps(dict(use.arguments), ensure_ascii=False)},
                }
                for name, use in zip(open_calls, turn.calls, strict=True)
            ]
        elif turn.role == "tool":
            message["tool_call_id"] = open_calls.popleft() if open_calls else ""
        messages.append(message)
    return messages


def _ours(step: int, rollout: Rollout, *, whole: bool) -> dict[str, Any]:
    """Returns the metadata that names the rollout of a turn; `whole` adds what rewards read, for one turn alone."""
    names = {"step": step, "rollout": rollout.number, "group": rollout.group, "env": rollout.env}
    names |= {"reward": rollout.reward, "advantage": rollout.advantage}
    read = {"columns": dict(rollout.columns), "completion": rollout.completion, "prompt": list(rollout.prompt)}
    return {**names, **(read if whole else {})}


def _wrong(turn: TraceTurn) -> Iterator[str]:
    prompt, sampled = turn.prompt_token_ids, turn.completion_token_ids
    if not prompt:
        yield "no prompt_token_ids"
    if any(token < 0 for token in (*prompt, *sampled)):
        yield "a negative token id"
    if len(turn.per_token_logps) != len(sampled):
        yield f"{len(turn.per_token_logps)} log-probabilities for {len(sampled)} sampled tokens"
    if any(not math.isfinite(value) or value > 0 for value in turn.per_token_logps):
        yield "a log-probability that is positive or not finite"
    if len(turn.loss_mask) != len(prompt) + len(sampled):
        yield f"a loss_mask of {len(turn.loss_mask)} for {len(prompt)} and {len(sampled)} tokens"
    if not {*turn.loss_mask} <= {0, 1} or any(turn.loss_mask[: len(prompt)]):
        yield "a loss_mask that is not 0 in the prompt and 0 or 1 behind it"


def _parent(earlier: Sequence[TraceTurn], turn: TraceTurn) -> int | None:
    for place in range(len(earlier) - 1, -1, -1):
        before = [*earlier[place].prompt_token_ids, *earlier[place].completion_token_ids]
        if turn.prompt_token_ids[: len(before)] == before:
            return place
    return None


def _choice(turn: TraceTurn) -> Mapping[str, Any]:
    choices = turn.response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, Mapping) else {}


def _asked(turn: TraceTurn) -> list[RecordedTurn]:
    messages = turn.request.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise ValueError(f"the request of turn '{turn.node_id}' has no messages, so its texts are not known")
    return [_turn(message) for message in messages]


def _answered(turn: TraceTurn) -> RecordedTurn:
    message = _choice(turn).get("message")
    if not isinstance(message, Mapping):
        raise ValueError(f"the response of turn '{turn.node_id}' has no message, so its text is not known")
    return _turn({**message, "role": "assistant"})


def _turn(message: Mapping[str, Any]) -> RecordedTurn:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    calls = message.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    uses = [_use(function) for function in functions if isinstance(function, Mapping)]
    return RecordedTurn(str(message.get("role", "")), content if isinstance(content, str) else "", tuple(uses))


def _use(function: Mapping[str, Any]) -> RecordedUse:
    arguments = function.get("arguments")
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        arguments = {"arguments": arguments}
    return RecordedUse(str(function.get("name", "")), arguments if isinstance(arguments, Mapping) else {})
