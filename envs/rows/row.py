"""Reads a row of a prompt and, where there is one, its answer, by named columns or by guessed ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from grpo.envs.datasets.checks import checked_text, kind
from grpo.envs.rows.choices import Choices, can_be_choices, read_choices
from grpo.envs.rows.messages import read_messages
from grpo.plugins.errors import DatasetError, did_you_mean

PROMPTS = ("prompt", "question", "problem", "instruction", "query", "input", "task", "messages", "conversations", "ctx")
ANSWERS = (
    "answer",
    "final_answer",
    "expected_answer",
    "ground_truth",
    "reward_model.ground_truth",
    "gold",
    "target",
    "solution",
    "expected",
    "label",
    "reference",
    "answers",
    "answerKey",
    "correct_answer",
    "correct",
    "output",
    "response",
)
CONTEXTS = ("context", "passage", "article", "document", "story", "paragraph", "background")
CHOICES = ("choices", "options", "endings")
_INSTRUCTIONS = ("instruction", "task")  # what follows them is in a column `input`


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the parts of a row stand: names of columns, or paths such as `reward_model.ground_truth`."""

    prompt: str  # text, or a list of chat messages
    answer: str  # the right answer, or "" where rows have none
    demonstration: str = ""  # a worked completion to warm up on, or ""
    context: str = ""  # a text that the prompt is about, or ""
    choices: str = ""  # what there is to choose from, or ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A checked row."""

    messages: tuple[dict[str, Any], ...]  # the prompt
    question: str  # what its last message of the user says
    # the right answer as text, several of which each is right, or None where rows have none
    answer: str | list[str] | None
    demonstration: str = ""  # a worked completion, or ""


def choose_columns(row: object, where: str, named: Mapping[str, str | None]) -> Columns:
    """Returns the columns to read, guessed where no name is given; a name of "" is none.

    Capitals do not matter. A context and choices are guessed only beside a prompt of text: messages are whole. `named`:
    the fields of `Columns` to what the user named. Raises DatasetError: no row, or no column known to hold a prompt.
    """
    if not isinstance(row, Mapping):
        raise DatasetError(f"{where}: a row must be an object with columns, found {kind(row)}.")
    prompt = named.get("prompt")
    if prompt is None:
        prompt = _first(row, PROMPTS, set(), lambda value: True)
    if not prompt:
        raise DatasetError(
            f"{where}: found no column for the prompt (looked for: {', '.join(PROMPTS)}). The row has: {_have(row)}. "
            "Name it, as in --env rows:dataset=FILE,prompt=COLUMN,answer=COLUMN."
        )
    context, choices, answer = named.get("context"), named.get("choices"), named.get("answer")
    taken = {prompt, context, choices, answer, named.get("demonstration")}
    whole = isinstance(row.get(prompt), list)
    if context is None:
        known = ("input", *CONTEXTS) if prompt.lower() in _INSTRUCTIONS else CONTEXTS
        context = "" if whole else _first(row, known, taken, _can_be_context)
    if choices is None:
        choices = "" if whole else _first(row, CHOICES, taken, can_be_choices)
    if answer is None:
        answer = _first(row, ANSWERS, taken | {context, choices}, lambda value: True)
        if answer.lower() == "answers" and isinstance(row[answer], Mapping) and "text" in row[answer]:
            answer = f"{answer}.text"  # SQuAD's
    return Columns(prompt, answer, named.get("demonstration") or "", context, choices)


def unused_columns(row: Mapping[Any, Any], columns: Columns) -> list[str]:
    """Returns the columns with texts, lists or objects that are part of no prompt and no answer."""
    names = (columns.prompt, columns.answer, columns.demonstration, columns.context, columns.choices)
    used = {*names, *(name.partition(".")[0] for name in names)}
    return [
        str(name)
        for name, value in row.items()
        if value and isinstance(value, str | Sequence | Mapping) and name not in used
    ]


def refuse_missing(row: Any, where: str, named: Mapping[str, str | None]) -> None:
    """Refuses columns that the user named and a row lacks."""
    for option, name in named.items():
        if name:
            _value(row, name, where, option)


def refuse_empty(row: Any, where: str, names: Sequence[str], first: str) -> None:
    """Refuses a row without a column that the first row has; `first` is where that is."""
    for name in filter(None, names):
        value: Any = row
        for part in (name,) if name in row else name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                close = did_you_mean(name, list(map(str, row)))
                raise DatasetError(
                    f"{where}: no column '{name}', which {first} has.{close} Fill it in, or leave the row out."
                )
            value = value[part]


def is_plain(row: object, columns: Columns) -> bool:
    """Returns whether a row is a prompt and an answer of ASCII, which `read_pair` takes as they are."""
    if columns.context or columns.choices or columns.demonstration or not isinstance(row, dict):
        return False
    return _is_ascii(row.get(columns.prompt)) and (not columns.answer or _is_ascii(row.get(columns.answer)))


def _is_ascii(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and bool(value) and not value.isspace()


def read_pair(row: object, where: str, columns: Columns, system: str | None = None) -> Pair:
    """Checks one row; `system` replaces the row's own ("" sends none). DatasetError names the column."""
    if not isinstance(row, Mapping):
        raise DatasetError(f"{where}: a row must be an object with columns, found {kind(row)}.")
    given = _value(row, columns.prompt, where, "prompt")
    messages = read_messages(given, f"{where}: the column '{columns.prompt}'", system)
    last = next(message for message in reversed(messages) if message["role"] == "user")
    choices = _choices_of(row, where, columns)
    last["content"] = _with_context(last["content"], row, where, columns)
    if choices is not None and not choices.shown_in(last["content"]):
        last["content"] += f"\n\n{choices.text}"
    answer = None
    if columns.answer:
        what = f"{where}: the column '{columns.answer}'"
        right = _value(row, columns.answer, where, "answer")
        answer = (None if choices is None else choices.golds(right, what)) or _golds(right, what)
    worked = ""
    if columns.demonstration:
        worked = checked_text(
            _value(row, columns.demonstration, where, "demonstration"), f"{where}: '{columns.demonstration}'"
        )
    return Pair(tuple(messages), last["content"], answer, worked)


def _first(row: Mapping[Any, Any], names: Sequence[str], taken: set[str | None], fits: Any) -> str:
    """The first column of known names, in the row's own letters, whose value fits; else ""."""
    for known in names:
        outer, dot, inner = known.partition(".")
        name = outer if outer in row else next((column for column in row if str(column).lower() == outer.lower()), None)
        if dot and isinstance(row.get(name), Mapping) and inner in row[name] and name not in taken:
            return f"{name}.{inner}"
        if not dot and name is not None and name not in taken and fits(row[name]):
            return str(name)
    return ""


def _can_be_context(value: Any) -> bool:
    return (
        value is None or isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))
    )


def _with_context(question: str, row: Mapping[Any, Any], where: str, columns: Columns) -> str:
    """The context follows an instruction and precedes a question."""
    if not columns.context:
        return question
    given = _value(row, columns.context, where, "context") if "." in columns.context else row.get(columns.context)
    if not _can_be_context(given):
        raise DatasetError(
            f"{where}: the column '{columns.context}' must be text or a list of texts, found {kind(given)}. To leave "
            'it out, write context="".'
        )
    text = given if isinstance(given, str) else "\n\n".join(given or ())
    if not text.strip() or text.strip() in question:
        return question
    text = checked_text(text, f"{where}: the column '{columns.context}'")
    return f"{question}\n\n{text}" if columns.context == "input" else f"{text}\n\n{question}"


def _choices_of(row: Mapping[Any, Any], where: str, columns: Columns) -> Choices | None:
    if not columns.choices:
        return None
    given = _value(row, columns.choices, where, "choices") if "." in columns.choices else row.get(columns.choices)
    choices = read_choices(given)
    if choices is None and given:
        raise DatasetError(
            f"{where}: the column '{columns.choices}' must be a list of texts, or an object of letters, found "
            f'{kind(given)}. To leave it out, write choices="".'
        )
    if choices is not None:
        checked_text(choices.text, f"{where}: the column '{columns.choices}'")
    return choices


def _value(row: Mapping[Any, Any], name: str, where: str, option: str) -> Any:
    """A dot leads into a nested column, unless a column has it in its name."""
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


def _golds(given: Any, what: str) -> str | list[str]:
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        if not given:
            raise DatasetError(f"{what} is an empty list. Write the right answers, or leave the row out.")
        return [_gold(gold, what) for gold in given]
    return _gold(given, what)


def _gold(given: Any, what: str) -> str:
    """A right answer as text: `true`, whole numbers without a fraction, dates in ISO 8601."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, datetime):
        return given.isoformat(" ") if given.time() != time() or given.tzinfo else given.date().isoformat()
    if isinstance(given, date | time):
        return given.isoformat()
    if isinstance(given, float | Decimal):
        if not math.isfinite(given):
            raise DatasetError(f"{what} is {given}, which is not an answer. Write a number, or leave the row out.")
        if isinstance(given, Decimal):
            return f"{given:.0f}" if given == given.to_integral_value() else f"{given.normalize():f}"
        return f"{given:.0f}" if given.is_integer() and abs(given) < 1e15 else repr(given)
    if not isinstance(given, str | int):
        wanted = "text, a number, true or false, a date or a list of these"
        raise DatasetError(f"{what} must be {wanted}, found {kind(given)}.{_way_in(given)}")
    return checked_text(str(given), what)


def _way_in(given: Any) -> str:
    if not isinstance(given, Mapping) or not given:
        return " Write the answer, or leave the row out."
    return f" Name what is inside with a dot: it has {', '.join(map(str, given))}."


def _have(row: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, row)) or "no columns"
