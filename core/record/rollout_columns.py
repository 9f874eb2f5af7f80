"""Declares the columns of a file of rollouts, and refuses a table that no run wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from grpo.core.record.table import LARGEST, parsed
from grpo.plugins.types import FinishReason

# The columns but those of outcomes, of which each reward has three.
COLUMNS: tuple[str, ...] = ("step", "group", "prompt", "completion", "tokens", "finish_reason", "columns")
COLUMNS += ("messages", "info", "reward", "advantage", "env", "right", "why")
COLUMNS += ("token_ids", "logprobs", "turn_rewards", "turn_advantages", "sampled_by")
PARTS = ("outcome", "score", "reason")
TOKENS = ("token_ids", "logprobs")
OUTCOMES = ("score", "abstain", "failure")
WHOLE = ("step", "group", "tokens")
ALWAYS = (*WHOLE, "prompt", "completion", "finish_reason", "columns", "advantage")


def type_of(column: str) -> Any:
    import pyarrow as pa

    if column in WHOLE:
        return pa.int64()
    types = {"right": pa.bool_(), "token_ids": pa.list_(pa.int32()), "sampled_by": pa.list_(pa.list_(pa.int64()))}
    types |= dict.fromkeys(("logprobs", "turn_rewards", "turn_advantages"), pa.list_(pa.float32()))
    if column in types:
        return types[column]
    return pa.float64() if column in ("reward", "advantage") or column.startswith("score.") else pa.string()


def refuse_other_columns(schema: Any) -> None:
    """Refuses columns that are not those of rollouts; checksums hold the values and not their names."""
    own = [name for name in schema.names if name not in COLUMNS]
    rewards = {name.partition(".")[2] for name in own}
    if {*COLUMNS} - {*schema.names} or {*own} != {f"{part}.{name}" for part in PARTS for name in rewards}:
        raise ValueError("the names of its columns are others.")
    if any(schema.field(name).type != type_of(name) for name in schema.names):
        raise ValueError("the types of its columns are others.")


def refuse_other_values(table: Any) -> None:
    """Refuses values that no run writes. A reward and an advantage may be any number: a run may overflow."""
    import pyarrow.compute as pc

    for name in ALWAYS:
        _refuse_unless(table[name].null_count == 0, name, "is missing in a row")
    for name in WHOLE:
        _refuse_outside(table[name], name)
    _refuse_unless_one_of(table["finish_reason"], get_args(FinishReason), "finish_reason")
    for name in table.column_names:
        part = name.partition(".")[0]
        if part == "outcome":
            _refuse_unless_one_of(table[name], OUTCOMES, name)
        elif part == "score":
            _refuse_unless(pc.all(pc.is_finite(table[name])).as_py() is not False, name, "is not a number in a row")
        elif name == "token_ids":
            _refuse_outside(pc.list_flatten(table[name]), name)
        elif name in ("turn_rewards", "turn_advantages"):
            _refuse_unless(pc.list_flatten(table[name]).null_count == 0, name, "has a gap in a row")
        elif name == "sampled_by":
            pairs = pc.list_flatten(table[name])
            twos = {*pc.list_value_length(pairs).unique().to_pylist()} <= {2, None}  # pyarrow's scalars load pandas
            _refuse_unless(twos and pairs.null_count == 0, name, "is not a list of pairs in a row")
            _refuse_outside(pc.list_flatten(pairs), name)
    _refuse_other_json(table)


def _refuse_other_json(table: Any) -> None:
    for name in ("prompt", "messages", "columns", "info"):
        for text in table[name].unique().to_pylist():  # a group has one prompt
            try:
                value = None if text is None else parsed(text, counted_with=False)
            except ValueError as error:
                raise ValueError(f"'{name}' is not JSON in a row: {error}.") from None
            if name in ("columns", "info"):
                _refuse_unless(isinstance(value, dict) or text is None, name, "is not a JSON object in a row")
            else:
                _refuse_unless(_are_messages(value) or text is None, name, "is not a list of chat messages in a row")


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in value
    )


def _refuse_unless_one_of(column: Any, known: Iterable[str], name: str) -> None:
    _refuse_unless({*column.unique().to_pylist()} <= {*known, None}, name, f"is none of {', '.join(known)} in a row")


def _refuse_outside(column: Any, name: str) -> None:
    import pyarrow.compute as pc

    ends = pc.min_max(column).as_py()
    inside = ends["min"] is None or (ends["min"] >= 0 and ends["max"] <= LARGEST)
    _refuse_unless(inside and column.null_count == 0, name, f"is not from 0 to {LARGEST} in a row")


def _refuse_unless(holds: bool, name: str, otherwise: str) -> None:
    if not holds:
        raise ValueError(f"'{name}' {otherwise}.")
