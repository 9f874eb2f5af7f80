"""Reads recorded completions and their columns from JSON lines, tables and TrainingTraces, and finds equal prompts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo.core.record.agent_calls import as_text
from grpo.core.record.training_trace import conversation_of, is_trace, read_trace
from grpo.core.text.printable import counted
from grpo.plugins.errors import DatasetError, UsageError, json_fault, with_article
from grpo.plugins.types import Completion, Message

GROUP_COLUMNS = ("group", "problem", "prompt", "question")  # "problem" as `grpo eval` numbers them, or its text
QUESTIONS = ("question", "problem", "instruction", "query")  # whose text is the prompt of a row that has no other
_CLOSING = re.compile(r"</(think|thinking|reasoning|thought)>")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One line."""

    line: int  # its number, from 1
    values: dict[str, Any]  # the row as it was read
    completion: Completion  # the completion, with the other columns as its row


def read_rows(lines: Iterable[bytes], source: str) -> Iterator[RecordedRow]:
    """Reads rows one by one; blank lines are skipped. Raises DatasetError."""
    for number, line in enumerate(lines, start=1):
        data = line.removeprefix(_BOM) if number == 1 else line
        if not data.strip():
            continue
        try:
            values = _object(data)
            yield trace_row(number, values) if is_trace(values) else RecordedRow(number, values, to_completion(values))
        except (ValueError, RecursionError) as error:
            raise DatasetError(
                f'{source}, line {number}: {error}. A line is one JSON object: {{"completion": "...", <columns>}}.'
            ) from error


def read_table(lines: Iterable[str], source: str) -> Iterator[RecordedRow]:
    """Reads rows of a CSV table with headings, all values as text. DatasetError names source and line."""
    import csv

    csv.field_size_limit(2**31 - 1)
    table = csv.reader(lines, delimiter="\t" if source.endswith(".tsv") else ",")
    names: list[str] = []
    try:
        for values in table:
            if not names:
                names = [name.removeprefix(_BOM.decode()) for name in values]
                if "completion" not in names:
                    raise ValueError(f"it has no column 'completion'; it has: {', '.join(names)}")
            elif len(values) not in (0, len(names)):
                raise ValueError(f"it has {counted(len(values), 'value')} for {counted(len(names), 'column')}")
            elif values:
                row = dict(zip(names, values, strict=True))
                yield RecordedRow(table.line_num, dict(row), to_completion(dict(row)))
    except (ValueError, csv.Error) as error:
        raise DatasetError(f"{source}, line {table.line_num}: {error}. The first line names the columns.") from error


def to_completion(values: dict[str, Any]) -> Completion:
    """Returns the completion of a row: text, or messages whose last assistant message is the text; else ValueError."""
    if "completion" not in values:
        raise ValueError(f"it has no 'completion'; it has: {', '.join(values) or 'nothing'}")
    content = values["completion"]
    messages = _messages(content, "assistant")
    spoken = [message["content"] for message in messages if message["role"] == "assistant"]
    if not spoken:
        raise ValueError("its completion has no message with the role 'assistant'")
    prompt = values.get("prompt", next((values[name] for name in QUESTIONS if isinstance(values.get(name), str)), None))
    return Completion(
        text=spoken[-1],
        messages=messages,
        prompt=_messages(prompt, "user") if isinstance(prompt, str | list) else (),
        row={name: value for name, value in values.items() if name != "completion"},
        turns=len(spoken),
        info=info if isinstance(info := values.get("info"), dict) else {},
    )


def trace_row(line: int, values: Mapping[str, Any]) -> RecordedRow:
    """Returns the row of a rollout that is recorded as OpenEnv's TrainingTrace.

    Its completion is the conversation of the last turn that trains, from the first answer on. Raises ValueError if it
    is not of the schema, or lacks question or answer.
    """
    trace = read_trace(values)
    turns = conversation_of(trace)
    first = next(place for place, turn in enumerate(turns) if turn.role == "assistant")
    messages = [Message(role=turn.role, content=as_text(turn)) for turn in turns]
    ours = next((turn.ours for turn in trace.turns if "columns" in turn.ours), trace.turns[0].ours)
    columns = ours.get("columns")
    row = dict(columns) if isinstance(columns, Mapping) else {}
    row |= {name: ours[name] for name in ("step", "group", "env") if ours.get(name) not in (None, "")}
    asked = ours.get("prompt")
    row |= {"completion": messages[first:], "prompt": asked if isinstance(asked, list) else messages[:first]}
    completion = to_completion(row)
    answer = ours.get("completion")
    trained = [pair for turn in trace.turns for pair in turn.trained]
    return RecordedRow(
        line,
        row,
        replace(
            completion,
            text=answer if isinstance(answer, str) else completion.text,
            token_ids=tuple(token for token, _ in trained),
            logprobs=tuple(logprob for _, logprob in trained),
        ),
    )


def begun(row: RecordedRow, opened: str, unopened: Counter[str]) -> RecordedRow:
    """Returns a row whose completion begins with what its template opened; `unopened` counts closed tags."""
    text = row.completion.text
    closed = next((tag for tag in _CLOSING.findall(text) if f"<{tag}>" not in text), None)
    if closed is None or not opened:
        unopened.update([] if closed is None else [f"<{closed}>"])
        return row
    last = max(place for place, message in enumerate(row.completion.messages) if message["role"] == "assistant")
    messages = [*row.completion.messages]
    messages[last] = Message(role="assistant", content=opened + text)
    return replace(row, completion=replace(row.completion, text=opened + text, messages=tuple(messages)))


def group_columns(values: Mapping[str, Any], named: str | None) -> tuple[str, ...]:
    """Returns the columns that a group shares: the named one, or the first of `GROUP_COLUMNS`, with step and env."""
    if named is not None:
        return (named,)
    column = next((name for name in GROUP_COLUMNS if name in values), None)
    if column is None:
        have = ", ".join(values)
        raise UsageError(
            f"no column says which rows are one group: none of {', '.join(GROUP_COLUMNS)} is there ({have}). "
            "Use --group-column."
        )
    return (*(name for name in ("env", "step") if name in values), column)


def groups_of(rows: Sequence[RecordedRow], columns: Sequence[str], source: str) -> list[str]:
    """Returns the group of each row, in words; DatasetError for a row that lacks a column."""
    keys = []
    for row in rows:
        missing = next((name for name in columns if name not in row.values), None)
        if missing is not None:
            raise DatasetError(
                f"{source}, line {row.line}: no column '{missing}' to group by. Choose another --group-column."
            )
        keys.append(", ".join(_in_words(name, row.values[name], alone=len(columns) == 1) for name in columns))
    return keys


def numbered(keys: Sequence[Hashable], completions: Sequence[Completion]) -> list[Completion]:
    """Returns completions with the numbers of their groups: those with equal keys are one."""
    numbers: dict[Hashable, int] = {}
    return [
        replace(completion, group=numbers.setdefault(key, len(numbers)))
        for key, completion in zip(keys, completions, strict=True)
    ]


def _in_words(name: str, value: Any, *, alone: bool) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if alone else f"{name} {text}"


def _object(data: bytes) -> dict[str, Any]:
    try:
        values = json.loads(data.rstrip(b"\r\n"))
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({json_fault(error)})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start + 1})") from error
    if not isinstance(values, dict):
        raise ValueError(f"it is a JSON {type(values).__name__}, not an object")
    return values


def _messages(content: Any, role: str) -> tuple[Message, ...]:
    if isinstance(content, str):
        return (Message(role=role, content=content),)
    if not isinstance(content, list):
        kind = "null" if content is None else with_article(type(content).__name__)
        raise ValueError(f"its completion is {kind}, not text or a list of messages")
    return tuple(_message(message) for message in content)


def _message(message: Any) -> Message:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ValueError("a message is not an object with a 'role'")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    if content is not None and not isinstance(content, str):
        raise ValueError(f"the content of a message is {with_article(type(content).__name__)}, not text")
    return Message(role=message["role"], content=content or "")
