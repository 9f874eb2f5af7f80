"""Finds the rows of a split in a file or a folder.

A folder has a file for each split, or the library `datasets` knows its splits (`save_to_disk`, clones of hub
repositories). Nothing is copied into its cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from grpo.envs.datasets.files import SUFFIXES, held_out, read_files, some
from grpo.envs.datasets.stored import StoredRows
from grpo.envs.datasets.tables import LibraryRows
from grpo.plugins.errors import DatasetError

S = TypeVar("S")


def read_split(path: Path, split: str, subset: str | None = None) -> StoredRows:
    """Returns the rows of a split with their places.

    A folder has one file per split, `train.jsonl` or `train.parquet` (or numbered, `train-00000-of-00002.parquet`), or
    is what `save_to_disk` wrote, or a clone of a hub repository. A single file, and a folder without `test`, is divided
    by `held_out`. `subset`: the configuration of a clone; None for its only one. Raises DatasetError.
    """
    try:
        return _read_split(path, split, subset)
    except OSError as error:
        raise DatasetError(
            f"{error.filename or path} cannot be read: {error.strerror or error}. Check the file and its rights."
        ) from error


def _read_split(path: Path, split: str, subset: str | None) -> StoredRows:
    if not path.is_dir():
        if subset is not None:
            raise DatasetError(f"subset={subset}: the file {path} has no configurations. Leave the option out.")
        return held_out(read_files([path]), split, str(path))
    files = {} if subset is not None else {name: _files_of(path, name) for name in ("train", "test")}
    if not any(files.values()):
        saved = (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()
        return _read_saved(path, split) if saved else _read_clone(path, split, subset)
    return _chosen(split, files, read_files, str(path))


def _chosen(
    split: str, splits: Mapping[str, S], read: Callable[[S], StoredRows], where: str, train: str = "train"
) -> StoredRows:
    """Reads a split; `train` names the split that is divided if there is no `test`. A split without rows does not
    count."""
    if split in splits and splits[split] and (split == "test" or splits.get("test")):
        return some(read(splits[split]), f"{where} ({split})")
    if split not in ("train", "test") or not splits.get(train):
        have = ", ".join(name for name, place in splits.items() if place) or "none"
        raise DatasetError(
            f"{where}: no rows for the split '{split}' (it has: {have}). Put {split}.jsonl or {split}.parquet into the "
            "folder."
        )
    return held_out(read(splits[train]), split, where)


def _files_of(folder: Path, split: str) -> list[Path]:
    named = [folder / f"{split}{suffix}" for suffix in SUFFIXES]
    files = [file for file in named if file.is_file()]
    files += [file for suffix in SUFFIXES for file in sorted(folder.glob(f"{split}-*{suffix}"))]
    if len(files) > 1 and (files[0] in named or len({file.suffix for file in files}) > 1):
        raise DatasetError(
            f"{folder}: several files could be the split '{split}': {', '.join(file.name for file in files)}. "
            "Keep one of them, or one numbered series."
        )
    return files


def _read_saved(path: Path, split: str) -> StoredRows:
    import datasets

    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:
        raise DatasetError(f"{path} cannot be loaded: {_first_line(error)}. Save the data set again.") from error
    splits = dict(saved) if isinstance(saved, dict) else {"train": saved}
    return _chosen(split, splits, lambda rows: StoredRows([LibraryRows(rows, str(path))]), str(path), _only(splits))


def _read_clone(path: Path, split: str, subset: str | None) -> StoredRows:
    import datasets

    try:
        files = datasets.load_dataset_builder(str(path), subset).config.data_files
    except Exception as error:
        remedy = f"Put train{SUFFIXES[0]} or train{SUFFIXES[1]} into the folder"
        if "Config name is missing" in str(error):
            remedy = "Choose one of its configurations with the option 'subset'"
        raise DatasetError(f"{path}: no rows for the split '{split}': {_first_line(error)}. {remedy}.") from error
    splits = {str(name): [Path(file) for file in paths] for name, paths in (files or {}).items()}
    return _chosen(split, splits, read_files, str(path), _only(splits))


def _only(splits: dict[str, Any]) -> str:
    """The split to train on: the only one, unless it is for testing, or else `train`."""
    return next(iter(splits)) if len(splits) == 1 and "test" not in splits else "train"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2]).rstrip(".")
