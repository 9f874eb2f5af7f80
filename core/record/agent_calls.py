"""Defines how an agent's episode is recorded, and reads it from the info of a rollout.

Token ids are recorded once: of each prompt what its parent did not have, and of a call that trains where its tokens
begin among those of the rollout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KEY = "agent"  # of a rollout's info


@dataclass(frozen=True, slots=True)
class RecordedUse:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A message."""

    role: str
    text: str
    calls: tuple[RecordedUse, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A request of a program and its answer."""

    parent: int | None  # the place of the call that it goes on from; None: it is a root
    root: str | None  # why it is one; None: it is none
    thread: str
    trains: bool  # its sampled tokens do
    delivered: bool
    prompt_tokens: int
    sampled_tokens: int
    finish: str | None  # why the answer ended; None: there is none
    seconds: float
    ignored: tuple[str, ...]  # parameters of the request without effect
    new: tuple[RecordedTurn, ...]  # messages that its conversation did not have before
    said: RecordedTurn | None
    new_ids: tuple[int, ...] = ()  # token ids of the prompt behind those of the parent and its answer
    ids: tuple[int, ...] = ()  # that were sampled and do not train
    at: int | None = None  # where those that train begin in the token ids of the rollout; None: it does not train
    auxiliary: bool = False  # it is no part of the task, such as one for a title


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """What an agent did in an episode."""

    calls: int
    roots: Mapping[str, int]  # how many of them began a conversation, by reason
    tokens_trained: int
    tokens_untrained: int
    # model_seconds, own_seconds: in which it waited for the policy, and all others
    model_seconds: float
    own_seconds: float
    exit: int | None  # its status; None where it did not start
    timed_out: bool
    refused: tuple[str, ...]  # what it was told instead of an answer, the first few
    # stdout, stderr: the last characters of each
    stdout: str
    stderr: str
    tree: tuple[RecordedCall, ...]
    files_omitted: int = 0


def as_info(record: AgentRecord) -> dict[str, Any]:
    """Returns a record as the info of a rollout; token ids, of which there are many, are not copied."""
    calls = [asdict(replace(call, new_ids=(), ids=())) for call in record.tree]
    ids = [{"new_ids": call.new_ids, "ids": call.ids} for call in record.tree]
    tree = [{**call, **own} for call, own in zip(calls, ids, strict=True)]
    return {**asdict(replace(record, tree=())), "tree": tree}


def agent_of(info: Mapping[str, Any]) -> AgentRecord | None:
    """Returns what an agent did; None for the info of another environment."""
    from pydantic import ValidationError

    if KEY not in info:
        return None
    try:
        record = _form().validate_python(info[KEY])
    except (ValidationError, RecursionError):
        return None
    earlier = all(call.parent is None or 0 <= call.parent < place for place, call in enumerate(record.tree))
    return record if earlier else None


def as_text(turn: RecordedTurn) -> str:
    """Returns a message with its calls of tools as JSON, as rewards read it."""
    calls = [json.dumps({"name": use.name, "arguments": dict(use.arguments)}) for use in turn.calls]
    return "\n".join([*([turn.text] if turn.text else []), *calls])


def depths(tree: Sequence[RecordedCall]) -> list[int]:
    """Returns how many branches each call stands in: a second call that goes on from the same one begins a branch."""
    levels: list[int] = []
    continued: set[int] = set()
    for call in tree:
        if call.parent is None:
            levels.append(0)
            continue
        levels.append(levels[call.parent] + (call.parent in continued))
        continued.add(call.parent)
    return levels


@cache
def _form() -> TypeAdapter[AgentRecord]:
    from pydantic import TypeAdapter

    return TypeAdapter(AgentRecord)


def without_ids(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the info of a rollout as people read it."""
    if agent_of(info) is None:
        return dict(info)
    tree = [{name: call[name] for name in call if name not in ("new_ids", "ids", "at")} for call in info[KEY]["tree"]]
    return {**info, KEY: {**info[KEY], "tree": tree}}
