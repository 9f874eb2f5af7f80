"""Folders that the library `datasets` knows: what `save_to_disk` wrote, and clones of repositories of the hub.

In: the folder, a split and a configuration. Out: the rows of the split with their places. The library says which files
are which split; they are read where they lie, and nothing is copied into its cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo.envs.rows.files import SUFFIXES, Placed, chosen, read_file
from grpo.plugins.errors import DatasetError


def read_folder(path: Path, split: str, subset: str | None) -> list[Placed]:
    """Returns the rows of a split with their places.

    Raises:
        DatasetError: the folder holds no rows that can be read, or several configurations and none is named.
    """
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return _read_saved(path, split)
    return _read_clone(path, split, subset)


def _read_saved(path: Path, split: str) -> list[Placed]:
    import datasets

    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:
        raise DatasetError(f"{path} cannot be loaded: {_first_line(error)}. Save the data set anew.") from error
    splits = dict(saved) if isinstance(saved, dict) else {"train": saved}

    def read(found: Any) -> list[Placed]:
        return [(f"{path}, row {number}", row) for number, row in enumerate(found, start=1)]

    return chosen(split, splits, read, str(path), _only(splits))


def _read_clone(path: Path, split: str, subset: str | None) -> list[Placed]:
    import datasets

    try:
        files = datasets.load_dataset_builder(str(path), subset).config.data_files
    except Exception as error:
        remedy = f"Put train{SUFFIXES[0]} or train{SUFFIXES[1]} into the folder"
        if "Config name is missing" in str(error):
            remedy = "Choose one of its configurations with the option 'subset'"
        raise DatasetError(f"{path}: no rows for the split '{split}': {_first_line(error)}. {remedy}.") from error
    splits = {str(name): [Path(file) for file in found] for name, found in (files or {}).items()}

    def read(found: list[Path]) -> list[Placed]:
        return [placed for file in found for placed in read_file(file)]

    return chosen(split, splits, read, str(path), _only(splits))


def _only(splits: dict[str, Any]) -> str:
    """Returns the name of the split to train on: the only one, unless it is for testing, or else `train`."""
    return next(iter(splits)) if len(splits) == 1 and "test" not in splits else "train"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2]).rstrip(".")
