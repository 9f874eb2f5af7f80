"""What ends a process is told apart: its own trouble, or what another one's end did to it."""

from __future__ import annotations

import click
import pytest

from grpo.core.processes.together import _end_of
from grpo.core.processes.watch import End, Kind, _decided
from grpo.plugins.errors import RunError, UsageError


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5000ms for recv"), "follows", 1),
        (RuntimeError("Application timeout caused pair closure"), "follows", 1),
        (RuntimeError("Connection closed by peer [127.0.0.1]:50111"), "follows", 1),
        (RuntimeError("NCCL communicator was aborted on rank 0."), "follows", 1),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "error", 1),
        (ValueError("Connection closed by peer"), "error", 1),
        (RunError("the loss of step 3 is nan"), "error", 1),
        (UsageError("no environment"), "error", 2),
        (click.BadParameter("no number"), "error", 2),
        (KeyboardInterrupt(), "stopped", 130),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_cause_is_told_from_what_follows_of_it(error: BaseException, kind: str, code: int) -> None:
    end = _end_of(error)
    assert (end.kind, end.code) == (kind, code)


@pytest.mark.parametrize(
    ("kinds", "teller"),
    [
        (["stopped", "follows", "error"], 2),
        (["follows", "lost", "stopped"], 1),
        (["follows", "stopped", "stopped"], 1),
        (["error", "lost", "error"], 0),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else "",
)
def test_an_error_is_told_before_a_loss_and_a_loss_before_a_stop(kinds: list[Kind], teller: int) -> None:
    ends = [End(rank=rank, code=1, why=kind, kind=kind, teller=rank) for rank, kind in enumerate(kinds)]
    assert _decided(ends, len(ends)).teller == teller


def test_where_nobody_knows_why_those_who_said_nothing_are_named() -> None:
    ends = [End(rank=rank, code=1, why="it broke.", kind="follows", teller=rank) for rank in (2, 0)]
    assert _decided(ends, 4).why == "it broke. Nothing was heard of process 1, 3 of 4."
