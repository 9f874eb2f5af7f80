"""Reads the fields that the request bodies of all APIs share, and explains what is wrong with a field.

None, "" and a missing field are the same everywhere: programs send all three for "nothing".
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NoReturn

from grpo.core.gateway.conversation import ChatTurn, Refused
from grpo.core.text.printable import encodable, one_line

Body = Mapping[str, Any]
UNREADABLE = "unreadable_arguments"  # the one argument of a call whose arguments are no JSON object
MOST_ANSWERS = 128
MOST_STOPS = 64
MOST_IGNORED = 64  # names of fields that a call records
NO_PARAMETERS: Body = {"type": "object", "properties": {}}
_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def malformed(problem: str, remedy: str) -> Refused:
    """Returns the error for a request that cannot be read; its status is 400."""
    return Refused(400, f"{problem}. {remedy}.")


def parsed(text: str) -> Any:
    """Parses JSON without NaN and infinities; halves of surrogate pairs become "?". Raises ValueError."""
    try:
        value = json.loads(text, parse_constant=_no_number)
        if _HALF_OF_A_PAIR.search(text):
            value = json.loads(encodable(json.dumps(value, ensure_ascii=False)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def body_of(data: bytes) -> Body:
    """Parses the body of a request. Raises Refused if it is no JSON object."""
    try:
        body = parsed(data.decode("utf-8"))
    except ValueError as error:
        raise malformed(f"The body is not JSON in UTF-8: {one_line(str(error))}", "Send a JSON object") from None
    if not isinstance(body, dict):
        raise malformed(f"The body is {_kind(body)}", "Send a JSON object")
    return body


def arguments_of(value: Any) -> Body:
    """Returns the arguments of a call in a history, JSON text or an object; other text stays under one key."""
    if isinstance(value, Mapping):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    if value is None or not text.strip():
        return {}
    try:
        arguments = parsed(text)
    except ValueError:
        return {UNREADABLE: text}
    return arguments if isinstance(arguments, dict) else {UNREADABLE: text}


def object_in(value: Any, where: str) -> Body:
    """Returns a JSON object. Raises Refused if it is none."""
    if not isinstance(value, Mapping):
        raise malformed(f"{where} is {_kind(value)}", "Send an object")
    return value


def objects_in(value: Any, where: str) -> Sequence[Body]:
    """Returns a list of JSON objects; nothing is an empty list. Raises Refused for something else."""
    if value is None or value == "":
        return ()
    if not isinstance(value, list):
        raise malformed(f"{where} is {_kind(value)}", "Send a list of objects")
    return [object_in(item, f"{where}[{index}]") for index, item in enumerate(value)]


def text_in(value: Any, where: str) -> str:
    """Returns a text; nothing is "". Raises Refused for something else."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise malformed(f"{where} is {_kind(value)}", "Send a text")
    return value


def content_in(
    value: Any, where: str, kinds: Container[str], skipped: Container[str] = (), separator: str = "\n"
) -> str:
    """Returns the text of a message's content, in parts of `kinds`, without `skipped` ones. Refused: other parts."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise malformed(f"{where} is {_kind(value)}", "Send a text or a list of text parts")
    texts: list[str] = []
    for index, part in enumerate(value):
        name = f"{where}[{index}]"
        kind = object_in(part, name).get("type")
        if kind in kinds:
            texts.append(text_in(part.get("refusal" if kind == "refusal" else "text"), name))
        elif kind not in skipped:
            raise malformed(
                f"{name} is of type {one_line(repr(kind))}, and the policy reads text alone", "Send text parts"
            )
    return separator.join(texts)


def whole_number(body: Body, names: Sequence[str], most: int | None = None) -> int | None:
    """Returns the first of these fields that is there: a number from 1 to `most`. Raises Refused for others."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if not isinstance(number, int) or isinstance(number, bool) or number < 1 or (most and number > most):
            limits = f"a whole number from 1 to {most}" if most else "a whole number of at least 1"
            raise malformed(f"{name} is {one_line(repr(value))}", f"Send {limits}")
        return number
    return None


def flag(body: Body, name: str) -> bool:
    """Returns whether a field is true. Raises Refused if it is neither true nor false."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise malformed(f"{name} is {_kind(value)}", "Send true or false")
    return value is True


def stops_in(value: Any, where: str) -> tuple[str, ...]:
    """Returns the texts, none empty, that end an answer: of one text or a list of them. Raises Refused."""
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise malformed(f"{where} is {_kind(value)}", "Send a text or a list of texts")
    if len(texts) > MOST_STOPS:
        raise malformed(f"{where} has {len(texts)} texts", f"Send at most {MOST_STOPS}")
    return tuple(text for text in texts if text)


def function_tool(name: Any, description: Any, parameters: Any, where: str) -> Body:
    """Returns a tool in the form of `Ask.tools`. Raises Refused without a name or JSON schema."""
    if not isinstance(name, str) or not name:
        raise malformed(f"{where} has no name", "Name every tool")
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": text_in(description, f"{where}.description"),
            "parameters": object_in(parameters or NO_PARAMETERS, f"the parameters of the tool '{one_line(name)}'"),
        },
    }


def tools_in(body: Body, kind: str, parameters: str, inside: str = "") -> tuple[tuple[Body, ...], list[str]]:
    """Returns the functions that a request offers, as `Ask.tools` has them, and the types of its other tools.

    `kind`: the type of a function, also where none is named. `parameters`: the field of its schema. `inside`: the field
    that holds a function's fields, "" for the tool itself.
    """
    functions: list[Body] = []
    others: list[str] = []
    for index, tool in enumerate(objects_in(body.get("tools"), "tools")):
        where = f"tools[{index}]"
        if (tool.get("type") or kind) != kind:
            others.append(str(tool["type"]))
            continue
        function = object_in(tool.get(inside), f"{where}.{inside}") if inside else tool
        functions.append(
            function_tool(function.get("name"), function.get("description"), function.get(parameters), where)
        )
    return tuple(functions), others


def ignored_in(body: Body, read: Container[str], tools: Iterable[str]) -> tuple[str, ...]:
    """Names what a request asks for and does not get: fields that nothing reads, a choice of tools, other tools."""
    names = [name for name, value in body.items() if name not in read and value is not None and name != "tool_choice"]
    choice = body.get("tool_choice")
    choice = choice.get("type") if isinstance(choice, Mapping) else choice
    if choice and choice != "auto":
        names.append(f"tool_choice={choice}")
    named = sorted({one_line(name) for name in (*names, *(f"tools.{tool}" for tool in tools))})
    return tuple(named[:MOST_IGNORED])


def in_order_of_calls(turns: Iterable[ChatTurn]) -> tuple[ChatTurn, ...]:
    """Puts answers in the order of the calls, since chat templates show no ids. Raises Refused without any message."""
    ordered: list[ChatTurn] = []
    for answering, run in groupby(turns, key=lambda turn: turn.role == "tool"):
        calls = [call.id for call in ordered[-1].calls] if answering and ordered else []
        places = {call: place for place, call in reversed([*enumerate(calls)])}
        last = len(places)  # of answers to calls that are not there
        ranked = [(places.get(turn.answers, last), number, turn) for number, turn in enumerate(run)]
        ordered += [turn for _, _, turn in sorted(ranked, key=lambda each: each[:2])]
    if not ordered:
        raise malformed("The request has no message", "Send at least one")
    return tuple(ordered)


def thread_of(headers: Mapping[str, str]) -> str:
    """Returns which of its conversations a program (Claude Code, Codex, opencode) names in its headers, or ""."""
    if session := headers.get("x-claude-code-session-id", ""):
        return f"claude-code {session} {headers.get('x-claude-code-agent-id', '')}".rstrip()
    if thread := headers.get("thread-id", "") or headers.get("session-id", ""):
        return f"codex {thread}"
    if session := headers.get("x-session-id", ""):
        return f"session {session}"
    return ""


def event(data: Body | str, name: str = "") -> bytes:
    """Returns a server-sent event; all its text is ASCII, since some clients end lines at U+2028."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def _kind(value: Any) -> str:
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return kinds.get(type(value), "missing")
