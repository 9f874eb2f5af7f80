"""What a run on a cluster tells the command that started it: read where it can be, and an end is never lost."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from grpo.core.run.endings import RunSummary
from grpo.core.run.ray.mailbox import Mailbox, read, written

SUMMARY = RunSummary(path=Path("run"), status="done", step=3, before=0.25, after=None)


@pytest.fixture
def elsewhere() -> Iterator[ModuleType]:
    """A module of a plugin that only the cluster has."""
    module = ModuleType("elsewhere")
    exec("class Told(str):\n    pass", vars(module))
    sys.modules["elsewhere"] = module
    yield module
    sys.modules.pop("elsewhere", None)


def taken(*messages: bytes) -> list[bytes]:
    mailbox = Mailbox()
    for message in messages:
        mailbox.tell(message)
    found: list[bytes] = pickle.loads(mailbox.take(b""))
    assert pickle.loads(mailbox.take(b"")) == []
    return found


def test_events_are_read_as_they_were_told_and_in_their_order() -> None:
    messages = taken(
        written("loading", "the model"), written("summary", SUMMARY), written("failed", "RunError", "a\nb")
    )
    found = [("loading", ("the model",)), ("summary", (SUMMARY,)), ("failed", ("RunError", "a\nb"))]
    assert [read(message) for message in messages] == found


@pytest.mark.parametrize(("event", "known"), [("failed", "it failed"), ("summary", "it has ended")])
def test_an_end_that_cannot_be_read_here_is_a_failure_that_says_so(
    event: str, known: str, elsewhere: ModuleType
) -> None:
    shown, end = taken(written("warned", elsewhere.Told("a")), written(event, "RunError", elsewhere.Told("b")))
    del sys.modules["elsewhere"]
    assert read(shown) is None
    name, (kind, told) = read(end) or ("", ("", ""))
    assert (name, kind) == ("failed", "RunError")
    assert f"is that {known}: its message cannot be read (ModuleNotFoundError: No module named 'elsewhere')" in told
