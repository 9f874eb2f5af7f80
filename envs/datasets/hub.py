"""Reads rows from the Hugging Face hub, through the library `datasets`.

What the library downloads it keeps, so a second run needs no network.
"""

from __future__ import annotations

from grpo.envs.datasets.files import held_out
from grpo.envs.datasets.stored import StoredRows
from grpo.envs.datasets.tables import LibraryRows
from grpo.plugins._hub import NotReached, from_hub
from grpo.plugins.errors import DatasetError, did_you_mean

_DEFAULT_SUBSETS = {"openai/gsm8k": "main", "google-research-datasets/mbpp": "full"}


def read_hub(name: str, subset: str | None, split: str) -> StoredRows:
    """Returns the rows of a split with their places.

    A dataset without a split `test` is divided by `held_out`, as a local file is. `subset`: None for the only one
    ("main" of openai/gsm8k, "full" of MBPP). Raises DatasetError: the hub cannot be reached, or has no such dataset,
    subset or split, or the split is empty.
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
    """Returns one line on why a dataset of the hub cannot be loaded, and what to do."""
    if isinstance(error, NotReached):
        remedy = "Give a file as dataset=FILE.jsonl or .parquet, or use dataset=embedded."
        return f"the hub's dataset '{name}' cannot be loaded: {error} {remedy}"
    first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    remedy = (
        "There is no local file or folder of that name either. Check the id and the option 'subset'; without a "
        "network, give a downloaded file (dataset=FILE.jsonl or .parquet) or use dataset=embedded."
    )
    return f"the hub's dataset '{name}' cannot be loaded: {first} ({type(error).__name__}). {remedy}"
