"""Writes rows that `grpo.train` is given as objects to JSON lines named by their content, so a run can resume."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import hashlib
import json
import math
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo.core.planning.output import RUNS
from grpo.core.record.run_dir import sync
from grpo.plugins.errors import UsageError, with_article

_SPLITS = ("train", "test", "validation", "valid", "dev")
_TAKES = "a list of dictionaries, a pandas DataFrame or a datasets.Dataset, or one of these for each split"


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The written data set of `grpo.train`."""

    source: str  # a name or a path
    names: dict[str, str]  # the files that rows were written to, and what the caller calls their rows
    new: tuple[Path, ...] = ()  # the files that were not there before

    def named(self, text: str) -> str:
        """Returns a message with rows by their place in the argument, `dataset, row 1`, and not by file and line."""
        for path, name in self.names.items():
            for line in set(re.findall(re.escape(path) + r", line (\d+)", text)):
                text = re.sub(re.escape(f"{path}, line {line}") + r"\b", f"{name}, row {int(line) - 1}", text)
            text = text.replace(path, name)
        return text.replace("dataset=FILE,", "") if self.names else text

    def remove(self) -> None:
        for path in self.new:
            path.unlink(missing_ok=True)
        for folder in {parent for path in self.new for parent in (path.parent, path.parent.parent)}:
            if folder.name == RUNS.name or folder.name.startswith("rows-"):
                with contextlib.suppress(OSError):  # it holds something
                    folder.rmdir()


def written_rows(dataset: Any, folder: Path) -> WrittenRows:
    """Returns the name or path of a data set, rows after they were written to a file in `folder`."""
    if isinstance(dataset, str | Path):
        return WrittenRows(str(dataset), {})
    if isinstance(dataset, Mapping):
        unknown = [name for name in dataset if name not in _SPLITS]
        if unknown or "train" not in dataset:
            raise UsageError(
                f"dataset is a dictionary with {', '.join(map(repr, dataset)) or 'nothing'}; one for each split has "
                f"'train', and may have 'test'. For rows give {_TAKES}."
            )
        texts = {name: _lines(rows, f"dataset[{name!r}]") for name, rows in dataset.items()}
        place = folder / f"rows-{_digest(texts.values())}"
        files = {(place / f"{name}.jsonl").resolve(): (f"dataset[{name!r}]", text) for name, text in texts.items()}
        return _written(place, files)
    text = _lines(dataset, "dataset")
    place = folder / f"rows-{_digest([text])}.jsonl"
    return _written(place, {place.resolve(): ("dataset", text)})


def _written(place: Path, files: Mapping[Path, tuple[str, str]]) -> WrittenRows:
    new = tuple(path for path in files if not path.exists())
    for path, (_name, text) in files.items():
        _write(path, text)
    names = {str(path): name for path, (name, _text) in files.items()}
    return WrittenRows(str(place.resolve()), {**names, str(place.resolve()): "dataset"}, new)


def _lines(rows: Any, name: str) -> str:
    lines = [_line(row, f"{name}, row {number}") for number, row in enumerate(_records(rows, name))]
    if not lines:
        raise UsageError(f"{name} has no rows. Give {_TAKES}.")
    return "".join(lines)


def _records(rows: Any, name: str) -> Iterator[Any]:
    if type(rows).__name__ == "IterableDataset":
        raise UsageError(
            f"{name} is a stream, and a run draws its rows in an order of its own. Give list({name}.take(N))."
        )
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # of pandas
        yield from rows.to_dict("records")
    elif isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        yield from rows
    else:
        raise UsageError(f"{name} is {with_article(type(rows).__name__)}. Give {_TAKES}.")


def _line(row: Any, place: str) -> str:
    if not isinstance(row, Mapping):
        raise UsageError(
            f"{place} is {with_article(type(row).__name__)}; a row is a dictionary, as in "
            "{'question': ..., 'answer': ...}."
        )
    values = {
        str(name): None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()
    }
    try:
        return json.dumps(values, ensure_ascii=False, default=_plain) + "\n"
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{place} cannot be written as JSON: {error}. Give text, numbers, lists and dictionaries."
        ) from error


def _plain(value: Any) -> Any:
    """Returns what JSON holds in the place of a value of NumPy, a date or a decimal number. Raises TypeError."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"it holds {with_article(type(value).__name__)}")


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:12]


def _write(path: Path, text: str) -> None:
    """Writes a file atomically: other processes of the run write the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        sync(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
