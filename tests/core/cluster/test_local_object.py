"""An object in a process of its own: what it returns, raises or ends with comes back, and nobody waits in vain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo.core.cluster.local_object import LocalObject
from grpo.core.cluster.ray_cluster import NodeLost
from grpo.plugins.errors import RunError

SOURCE = """
import os, subprocess, sys, time


class Echo:
    def __init__(self, greeting):
        self.greeting = greeting.encode()

    def say(self, message):
        return self.greeting + message

    def raises(self, message):
        raise ValueError("no such word")

    def exits(self, message):
        sys.exit(3)

    def ends(self, message):
        os._exit(4)

    def leaves(self, message):
        if message == b"fork" and os.fork() == 0:
            time.sleep(600)
        elif message == b"program":
            subprocess.Popen(["sleep", "600"], close_fds=False)
        os._exit(4)
"""
PATIENCE = 60.0


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalObject]:
    (tmp_path / "echo_of_a_test.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    made = LocalObject("echo_of_a_test:Echo", {"greeting": "hello "})
    yield made
    made.end()


def test_what_a_method_raises_or_exits_with_is_its_answer_and_the_object_goes_on(echo: LocalObject) -> None:
    assert echo.ask("say", b"you").result(PATIENCE) == b"hello you"
    with pytest.raises(RunError, match="ValueError: no such word"):
        echo.ask("raises").result(PATIENCE)
    with pytest.raises(RunError, match="SystemExit: 3"):
        echo.ask("exits").result(PATIENCE)
    assert echo.ask("say", b"again").result(PATIENCE) == b"hello again"


def test_a_process_that_ended_is_lost_for_good_to_whoever_asks_then_and_later(echo: LocalObject) -> None:
    for method in ("ends", "say"):
        with pytest.raises(NodeLost, match=r"its process ended with exit code 4"):
            echo.ask(method).result(PATIENCE)
    assert not echo.alive


@pytest.mark.parametrize("child", [b"fork", b"program"])
def test_a_process_that_ended_is_lost_at_once_though_a_child_of_it_lives_on(echo: LocalObject, child: bytes) -> None:
    with pytest.raises(NodeLost, match=r"its process ended with exit code 4"):
        echo.ask("leaves", child).result(PATIENCE)
