"""Finds the rows that an environment's option `dataset` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from grpo.envs.datasets.files import SUFFIXES
from grpo.envs.datasets.folders import read_split
from grpo.envs.datasets.hub import read_hub
from grpo.envs.datasets.stored import StoredRows
from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.errors import DatasetError, OptionError, did_you_mean
from grpo.plugins.specs import Option

DatasetKind = Literal["embedded", "local", "hub"]
_FILE_SUFFIXES = (*SUFFIXES, ".txt", ".gz")
_HUB_ID = lazy_pattern(r"[\w.-]+/[\w.-]+")


def dataset_kind(dataset: str) -> DatasetKind:
    """Tells where a dataset is: what exists here, or is written like a path, is local; "owner/name" is a hub id.

    Raises DatasetError: none of these, or a path that cannot be looked at.
    """
    if dataset == "embedded":
        return "embedded"
    try:
        path = Path(dataset).expanduser()
        if dataset and (dataset[0] in "./~" or path.suffix in _FILE_SUFFIXES or path.exists()):
            return "local"
    except (OSError, ValueError, RuntimeError) as error:
        raise DatasetError(f"dataset={dataset!r} cannot be looked at: {error}. Check the path.") from error
    if _HUB_ID.fullmatch(dataset):
        return "hub"
    raise DatasetError(
        f"no dataset '{dataset}'.{did_you_mean(dataset, ['embedded'])} Use embedded, a .jsonl, .json, .csv, .parquet "
        "or .arrow file, a folder with train and test files, or a hub id (owner/name)."
    )


def refuse_unused(
    options: Sequence[Option], given: Mapping[str, Any], used_by: Mapping[str, str], kind: DatasetKind
) -> None:
    """Refuses options that mean nothing for a kind of dataset and were set; `used_by` has the kinds of some options."""
    for option in options:
        kinds = used_by.get(option.name, kind).split()
        if kind not in kinds and given[option.name] != option.default:
            raise OptionError(
                f"the option '{option.name}' means nothing for dataset={given['dataset']}: it is for "
                f"{' and '.join(kinds)} datasets. Remove it."
            )


def read_placed(dataset: str, subset: str | None, split: str, kind: DatasetKind) -> StoredRows:
    """Returns the rows of a split of a local or a hub dataset, with their places.

    Raises DatasetError: it cannot be read.
    """
    if kind == "local":
        return read_split(Path(dataset).expanduser(), split, subset)
    return read_hub(dataset, subset, split)
