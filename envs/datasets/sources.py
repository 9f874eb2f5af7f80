"""Finds the rows that an environment's option `dataset` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from grpo.envs.datasets.files import SUFFIXES, held_out
from grpo.envs.datasets.folders import read_split
from grpo.envs.datasets.stored import StoredRows
from grpo.envs.datasets.tables import LibraryRows
from grpo.plugins._hub import NotReached, from_hub
from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.errors import DatasetError, OptionError, did_you_mean
from grpo.plugins.specs import Option

DatasetKind = Literal["embedded", "local", "hub"]
_FILE_SUFFIXES = (*SUFFIXES, ".txt", ".gz")
_HUB_ID = lazy_pattern(r"[\w.-]+/[\w.-]+")
_EMBEDDED = "embedded if the environment has embedded rows"
_OFFLINE = f"Without a network, give a downloaded file (dataset=FILE.jsonl or .parquet), or dataset={_EMBEDDED}."
_DEFAULT_SUBSETS = {"openai/gsm8k": "main", "google-research-datasets/mbpp": "full"}


def dataset_kind(dataset: str) -> DatasetKind:
    """Tells "owner/name" of the hub from a local path, which exists or looks like one. Raises DatasetError: neither."""
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
        f"no dataset '{dataset}'.{did_you_mean(dataset, ['embedded'])} Use a .jsonl, .json, .csv, .parquet or .arrow "
        f"file, a folder with train and test files, a hub id (owner/name), or {_EMBEDDED}."
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
    """Returns the rows of a split of a local or a hub dataset, with their places. Raises DatasetError."""
    if kind == "local":
        return read_split(Path(dataset).expanduser(), split, subset)
    return read_hub(dataset, subset, split)


def read_hub(name: str, subset: str | None, split: str) -> StoredRows:
    """Returns the rows of a split with their places; without a split `test`, `held_out` divides the dataset.

    `subset`: None for the only one ("main" of openai/gsm8k, "full" of MBPP). Raises DatasetError: the hub cannot be
    reached, or has no such dataset, subset or split, or the split is empty.
    """
    import datasets

    try:
        with from_hub(name):
            splits = datasets.load_dataset(name, subset or _DEFAULT_SUBSETS.get(name))
    except Exception as error:
        raise DatasetError(_explain(name, error)) from error
    whole = "test" not in splits and "train" in splits and split in ("train", "test")
    source = "train" if whole else split
    if source not in splits:
        raise DatasetError(
            f"{name} has no split '{split}'.{did_you_mean(split, splits)} Its splits are: {', '.join(splits)}."
        )
    rows = StoredRows([LibraryRows(splits[source], f"{name} ({source})")])
    if whole:
        return held_out(rows, split, name)
    if not rows:
        raise DatasetError(f"{name} ({source}): no rows. Choose another split or subset.")
    return rows


def _explain(name: str, error: Exception) -> str:
    if isinstance(error, NotReached):
        return f"the hub's dataset '{name}' cannot be loaded: {error} {_OFFLINE}"
    first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    remedy = f"There is no local file or folder of that name either. Check the id and the option 'subset'. {_OFFLINE}"
    return f"the hub's dataset '{name}' cannot be loaded: {first} ({type(error).__name__}). {remedy}"
