"""A row of a prompt and, where there is one, its answer: a row and the names of its columns in, what is asked out.

Names that were not given are guessed from the columns that there are; whatever is wrong with a row is said with its
place, the columns that it has and what to write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.plugins.errors import DatasetError, did_you_mean

PROMPTS = ("prompt", "question", "problem", "instruction", "query", "input", "task", "messages")
ANSWERS = ("answer", "ground_truth", "gold", "target", "solution", "expected", "label", "reference")
_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the parts of a row stand: names of columns, or ways into nested ones such as `reward_model.ground_truth`.

    Attributes:
        prompt: text, or a list of chat messages.
        answer: the right answer, or "" where rows have none.
        demonstration: a worked completion to warm up on, or "".
    """

    prompt: str
    answer: str
    demonstration: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A checked row.

    Attributes:
        messages: the prompt.
        question: what its last message of the user says.
        answer: the right answer as text, several of which each is right, or None where rows have none.
        demonstration: a worked completion, or "".
    """

    messages: tuple[dict[str, Any], ...]
    question: str
    answer: str | list[str] | None
    demonstration: str = ""


def choose_columns(row: object, where: str, prompt: str | None, answer: str | None, demonstration: str) -> Columns:
    """Returns the columns to read, guessed where no name is given; an answer of "" is none.

    Raises:
        DatasetError: it is no row, or no column of it is known to hold a prompt.
    """
    if not isinstance(row, Mapping):
        raise DatasetError(f"{where}: a row must be an object with columns, found {_kind(row)}.")
    if prompt is None:
        prompt = next((name for name in PROMPTS if name in row), None)
    if prompt is None:
        raise DatasetError(
            f"{where}: no column is known to hold the prompt (known: {', '.join(PROMPTS)}). The row has: {_have(row)}. "
            "Name it, as in --env rows:dataset=FILE,prompt=COLUMN,answer=COLUMN."
        )
    if answer is None:
        answer = next((name for name in ANSWERS if name in row and name != prompt), "")
    return Columns(prompt, answer, demonstration)


def read_pair(row: object, where: str, columns: Columns, system: str | None = None) -> Pair:
    """Checks one row.

    Args:
        row: a mapping from column to value.
        where: its place, for messages.
        columns: what to read.
        system: a system message in the place of the row's own; "" sends none, None leaves the row's.

    Raises:
        DatasetError: a column is missing, or holds what cannot be used.
    """
    if not isinstance(row, Mapping):
        raise DatasetError(f"{where}: a row must be an object with columns, found {_kind(row)}.")
    messages = _messages(_value(row, columns.prompt, where, "prompt"), f"{where}: the column '{columns.prompt}'")
    if system is not None:
        messages = [message for message in messages if message["role"] != "system"]
        messages = [*([{"role": "system", "content": system}] if system else []), *messages]
    asked = [message["content"] for message in messages if message["role"] == "user"]
    answer = None
    if columns.answer:
        given = _value(row, columns.answer, where, "answer")
        answer = _golds(given, f"{where}: the column '{columns.answer}'")
    worked = ""
    if columns.demonstration:
        worked = _text(
            _value(row, columns.demonstration, where, "demonstration"), f"{where}: '{columns.demonstration}'"
        )
    return Pair(tuple(messages), asked[-1], answer, worked)


def _value(row: Mapping[Any, Any], name: str, where: str, option: str) -> Any:
    """Returns what a column holds; a dot leads into a nested one, unless a column has it in its name."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise DatasetError(
                f"{where}: no column '{name}'.{did_you_mean(name, list(map(str, row)))} The row has: {_have(row)}. "
                f"Name the right one with the option '{option}', as in --env rows:dataset=FILE,{option}=COLUMN."
            )
        value = value[part]
    return value


def _messages(given: Any, what: str) -> list[dict[str, Any]]:
    if isinstance(given, str):
        return [{"role": "user", "content": _text(given, what)}]
    if not isinstance(given, Sequence) or isinstance(given, bytes) or not given:
        raise DatasetError(f"{what} must be text or a list of messages, found {_kind(given)}.")
    messages = []
    for number, message in enumerate(given, start=1):
        one = f"{what}, message {number}"
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise DatasetError(f'{one}: write {{"role": "user", "content": "..."}}, found {_kind(message)}.')
        if message["role"] not in _ROLES:
            raise DatasetError(f"{one}: no role '{message['role']}'. Choose one of: {', '.join(_ROLES)}.")
        content = message["content"]
        if isinstance(content, Sequence) and not isinstance(content, str):
            content = "".join(_part(part, one) for part in content)
        messages.append({**_without_nulls(message), "content": _text(content, one)})
    if messages[-1]["role"] == "assistant":
        raise DatasetError(
            f"{what} ends with a message of the assistant, which the policy is to write itself. Leave it out; to warm "
            "up on it, put it into a column of its own and name that with the option 'demonstration'."
        )
    if not any(message["role"] == "user" for message in messages):
        raise DatasetError(f"{what} has no message of the user. Add one.")
    return messages


def _part(part: Any, what: str) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise DatasetError(f"{what} has a part that is no text. Only texts can be shown to the policy.")


def _without_nulls(message: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns a message without the keys that a table fills up with null."""
    return {str(key): value for key, value in message.items() if value is not None}


def _golds(given: Any, what: str) -> str | list[str]:
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        if not given:
            raise DatasetError(f"{what} is an empty list. Write the right answers, or leave the row out.")
        return [_gold(one, what) for one in given]
    return _gold(given, what)


def _gold(given: Any, what: str) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise DatasetError(f"{what} must be text, a number or a list of these, found {_kind(given)}.{_way_in(given)}")
    if isinstance(given, float):
        if not math.isfinite(given):
            raise DatasetError(f"{what} is {given}, which is no answer. Write a number, or leave the row out.")
        return f"{given:.0f}" if given.is_integer() and abs(given) < 1e15 else repr(given)
    return _text(str(given), what)


def _way_in(given: Any) -> str:
    if not isinstance(given, Mapping) or not given:
        return " Write the answer, or leave the row out."
    return f" Name what is inside with a dot: it has {', '.join(map(str, given))}."


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise DatasetError(f"{what} must be text, found {_kind(given)}.")
    if not given.strip():
        raise DatasetError(f"{what} is empty. Fill it in, or leave the row out.")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise DatasetError(
            f"{what} has a lone surrogate at character {error.start + 1}, which no tokenizer can read. Write the "
            "character as UTF-8."
        ) from error
    return given


def _have(row: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, row)) or "no columns"


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "true or false", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
