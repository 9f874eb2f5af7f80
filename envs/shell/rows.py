"""Reads the rows of `shell`: an instruction, files, and the script that grades the result."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from grpo.envs.shell.task import REWARD, Script, SessionTask
from grpo.plugins.errors import DatasetError, with_article

_COLUMNS = "instruction and grader, and optionally files, solution and name"
LONGEST_ARGUMENT = 100_000  # bytes of an argument of a program
_SOLUTION = "/solution/solve.sh"
_KINDS = {"instruction": str, "grader": str, "solution": str, "name": str, "files": Mapping}


def read_task_row(row: object, where: str, seconds: float) -> SessionTask:
    """Returns the task of a row; its grader may take `seconds`. Raises DatasetError: a column is missing or no text."""
    if not isinstance(row, Mapping):
        raise DatasetError(
            f"{where}: a row is an object with the columns {_COLUMNS}, not {with_article(type(row).__name__)}."
        )
    for column, kind in _KINDS.items():
        value = row.get(column)
        if column in ("instruction", "grader") and column not in row:
            have = ", ".join(map(str, row)) or "none"
            raise DatasetError(f"{where}: no column '{column}'; the row has: {have}. It needs {_COLUMNS}.")
        if column == "grader" and isinstance(value, str) and (len(value.encode()) > LONGEST_ARGUMENT or "\0" in value):
            raise DatasetError(
                f"{where}: the column 'grader' has NUL or more than {LONGEST_ARGUMENT:,} bytes. Put what it "
                "needs into files."
            )
        if value is None and column not in ("instruction", "grader"):
            continue
        if not isinstance(value, kind) or (column in ("instruction", "grader") and not value.strip()):
            what = "an object, path to text" if column == "files" else "text"
            raise DatasetError(f"{where}: the column '{column}' must hold {what}. A row has {_COLUMNS}.")
    files = {path: text for path, text in (row.get("files") or {}).items() if text is not None}
    for path, text in files.items():
        if not path or not isinstance(text, str):
            raise DatasetError(f"{where}: the column 'files', {path!r}: the content of a file must be text.")
        place = posixpath.normpath(path)
        if posixpath.isabs(place) or place.split("/")[0] in (".", "..") or path.endswith("/"):
            raise DatasetError(
                f"{where}: the column 'files', {path!r}: name a file in the working directory, as in 'data/in.txt'."
            )
    grader = ("sh", "-c", row["grader"], "grader")  # in no file, which programs that it runs could change
    solution = None
    if row.get("solution"):
        content = row["solution"].encode("utf-8", "surrogatepass")
        solution = Script(("sh", _SOLUTION), {_SOLUTION: (content, 0o755)}, seconds=seconds)
    return SessionTask(
        name=row.get("name") or where,
        instruction=row["instruction"],
        grader=Script(grader, seconds=seconds),
        solution=solution,
        files={path: (text.encode("utf-8", "surrogatepass"), 0o644) for path, text in files.items()},
        writes=REWARD in row["grader"],
    )
