"""Exchanges values among the ranks of a run over gloo; each wait has a limit. A run alone is process 0 of 1."""

from __future__ import annotations

import atexit
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from grpo.core.processes.rank import count, rank
from grpo.core.processes.sharding import asked_sharding, join
from grpo.core.processes.watch import Watch
from grpo.plugins.errors import RunError

T = TypeVar("T")

MISSING = re.compile(r"Ranks ([\d, ]+) failed to pass monitoredBarrier")  # of torch, on process 0


class ApartError(RunError):
    """The processes lost each other: one did not come, or its connection broke."""


@dataclass(frozen=True, slots=True)
class _Connection:
    group: Any  # of torch, for objects
    limit: float  # seconds that a wait in it may take
    watch: Watch | None  # ends all of them together; None while they are still being connected


_connection: _Connection | None = None


def connect(limit: float) -> None:
    """Connects the processes, once and first; `limit`: seconds of any wait. Raises ApartError."""
    global _connection
    if count() == 1 or _connection is not None:
        return
    import torch

    patience, met = timedelta(seconds=limit), torch.distributed.is_initialized()
    try:
        join(asked_sharding(), timeout=patience)
        if met:  # whoever connected them, as Ray does, knew nothing of this run's limit
            torch.distributed.distributed_c10d._set_pg_timeout(patience)
        group = torch.distributed.new_group(backend="gloo", timeout=patience)
        _connection = _Connection(group, limit, None)
        watch = Watch(rank(), count(), limit, lambda value: agreed(value, "the start"))
        _connection = _Connection(group, limit, watch)
    except (torch.distributed.DistError, OSError) as error:
        raise ApartError(
            f"the {count()} processes of this run did not find each other within {limit:g} s: {error}. Start all of "
            "them, and check that each one reaches MASTER_ADDR."
        ) from error
    atexit.register(watch.leave)


def watched() -> Watch | None:
    """Returns the watch that ends the processes together; None before they are connected."""
    return _connection.watch if _connection is not None else None


def ending() -> bool:
    """Returns whether the run ends because of one of the processes."""
    watch = watched()
    return watch is not None and (watch.suspected or watch.end is not None)


def wait(what: str) -> None:
    """Waits for `what`, until every process is here. Raises ApartError, which names the process that did not come."""
    if count() > 1:
        _meet(what)


def gathered(value: T, what: str) -> list[T]:
    """Returns the values of all processes, in their order. Raises ApartError."""
    if count() == 1:
        return [value]
    import torch.distributed as dist

    group, values = _meet(what), [value] * count()
    dist.all_gather_object(values, value, group=group)
    return values


def rows_of_all(rows: Sequence[T], what: str) -> list[T]:
    """Returns the rows of all processes, those of the first one first. Raises ApartError."""
    return [row for own in gathered(list(rows), what) for row in own]


def any_of(here: bool, what: str) -> bool:
    """Returns whether it is so on one of the processes. Raises ApartError."""
    return any(gathered(here, what))


def agreed(value: T, what: str) -> T:
    """Returns the first process's value on every process. Raises ApartError."""
    if count() == 1:
        return value
    import torch.distributed as dist

    group, values = _meet(what), [value]
    dist.broadcast_object_list(values, src=0, group=group)
    return values[0]


def _meet(what: str) -> Any:
    import torch.distributed as dist

    if _connection is None:
        raise AssertionError("the processes of a run are connected before they say anything")
    group, limit = _connection.group, _connection.limit
    try:
        dist.monitored_barrier(group, timedelta(seconds=limit), wait_all_ranks=True)
    except RuntimeError as error:
        raise ApartError(_missed(str(error), what, limit)) from error
    return group


def _missed(text: str, what: str, limit: float) -> str:
    match = MISSING.search(text)
    waited = f"while process {rank()} waited for {what}"
    if match is None and "imed out" not in text:
        return f"the connection between the processes broke, {waited}: {text}"
    missing = match[1] if match else "0"
    return (
        f"process {missing} of {count()} did not arrive within {limit:g} s, {waited}. Check what it does. If it is "
        "only slow, raise failures.wait_limit. The run resumes from its last complete checkpoint, or from the start."
    )
