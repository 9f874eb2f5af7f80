"""Reads a row of programming tasks: its question, the columns for rewards and a worked answer.

Known by their columns: HumanEval (`prompt` and `entry_point`), MBPP (`text` or `prompt`, `test_list`), rows with
`tests` and rows with `inputs` and `outputs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo.envs.text.single_turn import Asked
from grpo.plugins.errors import DatasetError

_QUESTIONS = ("question", "problem", "text", "description", "statement", "instruction", "prompt")
_SOLUTIONS = ("canonical_solution", "code", "solution", "reference_solution")
_TESTS = ("tests", "test", "test_list")


def read_code_row(row: object, where: str, *, question: str = "", system: str = "", shown: int = 1) -> Asked:
    """Returns what the episode of a row shows.

    `where`: the row's place, for messages. `question`: the column with the task; "" for the first known name. `system`:
    the system message. `shown`: how many of the row's assertions the question shows, as MBPP's do not say what the
    function is called. Raises DatasetError: no such column, no text in it, or no tests.
    """
    if not isinstance(row, Mapping):
        raise DatasetError(f"{where}: a row is an object with columns, found a {type(row).__name__}.")
    names = [question] if question else [name for name in _QUESTIONS if name in row]
    if not names or names[0] not in row:
        have = ", ".join(map(str, row)) or "none"
        raise DatasetError(
            f"{where}: no column '{question or 'question'}'; the row has: {have}. Name it with question=COLUMN."
        )
    text = row[names[0]]
    if not isinstance(text, str) or not text.strip():
        raise DatasetError(f"{where}: the column '{names[0]}' must hold the task as text.")
    if not any(row.get(name) for name in _TESTS) and (row.get("inputs") is None or row.get("outputs") is None):
        raise DatasetError(
            f"{where}: no tests; the row has: {', '.join(map(str, row))}. A row needs a column tests, test or "
            "test_list, or inputs and outputs."
        )
    return Asked(_question(text, row, shown), row, system, _demonstration(text, row))


def _question(text: str, row: Mapping[str, Any], shown: int) -> str:
    if _is_code(text, row):
        return f"Complete this Python program:\n```python\n{text.rstrip()}\n```"
    tests = row.get("test_list")
    if shown and isinstance(tests, Sequence) and not isinstance(tests, str):
        examples = "\n".join(str(test).strip() for test in tests[:shown])
        return f"{text.strip()}\nFor example:\n{examples}"
    return text.strip()


def _demonstration(text: str, row: Mapping[str, Any]) -> str:
    solution = next((row[name] for name in _SOLUTIONS if isinstance(row.get(name), str) and row[name].strip()), "")
    if not solution:
        return ""
    program = text + solution if _is_code(text, row) and f"def {row['entry_point']}" not in solution else solution
    return "```python\n" + program.replace("\r\n", "\n").strip("\n") + "\n```"


def _is_code(text: str, row: Mapping[str, Any]) -> bool:
    name = row.get("entry_point")
    return isinstance(name, str) and bool(name) and f"def {name}" in text
