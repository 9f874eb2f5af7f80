"""Child processes: whole messages, an environment of their own, and an end with all that they started."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import echoing_child
import pytest
from patience import wait_for

from grpo.plugins.child_process import ChildProcess, receive_message, send_message


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    started = ChildProcess(echoing_child.__name__, ["hello"], environment={"ONLY": "this"})
    assert receive_message(started.channel) == b"hello"
    yield started
    started.end()


def ask(child: ChildProcess, message: bytes) -> bytes:
    send_message(child.channel, message)
    return receive_message(child.channel)


def exists(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_messages_arrive_whole_whatever_their_size(child: ChildProcess) -> None:
    for message in (b"", b"x", bytes(range(256)) * 20_000):
        assert ask(child, message) == message


def test_it_has_no_other_variables_than_it_is_given(child: ChildProcess) -> None:
    assert "ONLY" in json.loads(ask(child, b"variables"))
    assert not {"HOME", "PATH"} & {*json.loads(ask(child, b"variables"))}


def test_it_ends_when_its_socket_closes(child: ChildProcess) -> None:
    child.channel.close()
    assert wait_for(child.gone), "it is still there"
    child.end()
    assert child.ending() == "ended with exit code 0"


def test_its_end_is_that_of_all_it_started(child: ChildProcess) -> None:
    sleeper = int(ask(child, b"start"))
    child.end()
    assert wait_for(lambda: not exists(sleeper)), "what it started is still there"


def test_how_it_ended_is_known_until_and_after_it_is_reaped(child: ChildProcess) -> None:
    send_message(child.channel, b"exit")
    with pytest.raises(ConnectionError):
        receive_message(child.channel)
    assert wait_for(child.gone)
    assert not child.reaped
    child.kill()  # nobody else has its number yet
    child.reap()
    assert child.reaped
    assert child.ending() == "ended with exit code 3"
