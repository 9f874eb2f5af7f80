"""Reads JSON and Parquet files of unknown origin, up to the size that a run writes.

A Parquet file of some kilobytes can unfold to gigabytes, so its own account of its size is checked first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MOST_BYTES = 2 * 2**30  # of a file once it is read: 30 times what a step of 1024 rollouts of 8192 tokens has
MOST_ROWS = 2**20
WIDTH = 8  # bytes of a number at most
LARGEST = 2**31 - 1  # of a step, of a group and of other whole numbers that are kept in 32 bits
DEEPEST = 200  # what is nested deeper cannot be written again without running out of stack
MOST_DIGITS = 300  # of a whole number; with more it is none of 64 bits with a point


def read_table(file: Path, choose: Callable[[Any], Sequence[str]]) -> Any:
    """Returns the pyarrow table of a Parquet file, with the columns that `choose` picks of its schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file)
    schema = metadata.schema.to_arrow_schema()
    if len(set(schema.names)) != len(schema.names):
        raise ValueError("it has a column twice.")
    names = list(choose(schema))
    types = {name: schema.field(name).type for name in names}
    texts = [name for name in names if types[name] == pa.string()]
    with pq.ParquetFile(file, metadata=metadata, read_dictionary=texts, page_checksum_verification=True) as opened:
        _refuse_large(opened, [name for name in names if pa.types.is_list(types[name])])
        folded = opened.read(columns=names).select(names)
    if sum(_unfolded(folded[name]) for name in texts) > MOST_BYTES:
        raise ValueError(f"its texts have more than {MOST_BYTES:,} bytes, more than any run writes.")
    return folded.cast(pa.schema([schema.field(name) for name in names]))


def _refuse_large(opened: Any, lists: Sequence[str]) -> None:
    """Refuses, with ValueError, what takes too much memory by its own account."""
    metadata = opened.metadata
    if metadata.num_rows > MOST_ROWS:
        raise ValueError(f"it has {metadata.num_rows:,} rows, and no run writes more than {MOST_ROWS:,}.")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size = sum(group.total_byte_size for group in groups)
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    inner = [number for number, path in enumerate(paths) if path.partition(".")[0] in lists]
    if size <= MOST_BYTES and inner:
        opened.scan_contents(list(lists))  # piece by piece; the account of a damaged column would end the process
        size = max(size, sum(WIDTH * group.column(number).num_values for group in groups for number in inner))
    if size > MOST_BYTES:
        raise ValueError(f"it unfolds to {size:,} bytes, and no run writes more than {MOST_BYTES:,}.")


def _unfolded(column: Any) -> int:
    import pyarrow.compute as pc

    lengths = (pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    return sum(pc.sum(pc.cast(own, "int64")).as_py() or 0 for own in lengths)


def parsed(text: str, *, counted_with: bool = True) -> Any:
    """Returns what JSON holds; ValueError where it is none, nested too deeply, or has a number that is too large."""
    too_deep = f"it is nested more than {DEEPEST} deep"
    try:
        value = (_DECODER if counted_with else _ANY).decode(text)
    except RecursionError:
        raise ValueError(too_deep) from None
    if text.count("[") + text.count("{") > DEEPEST and _depth(value) > DEEPEST:
        raise ValueError(too_deep)
    return value


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_whole)

_ANY = json.JSONDecoder()


def _depth(value: Any) -> int:
    depth = -1
    level: list[Any] = [[value]]
    while level:
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [part for several in inner for part in several if isinstance(part, (list, dict))]
        depth += 1
    return depth
