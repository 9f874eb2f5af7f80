"""A real Firefox, driven by WebDriver BiDi over its own remote agent: addresses, keys and questions in, answers out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("firefox-esr", "firefox")
LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
WAIT = 60.0  # seconds


def firefox_command() -> str | None:
    """Returns the Firefox of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Firefox:
    """One tab.

    Attributes:
        said: what the console said and what was thrown.
        asked: the addresses that the page asked for.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self._connection = connection
        self._count = 0
        self._call("session.new", capabilities={})
        self._call("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._tab = self._call("browsingContext.getTree")["contexts"][0]["context"]
        self._call("browsingContext.setViewport", context=self._tab, viewport={"width": 1280, "height": 900})

    def open(self, url: str) -> None:
        self._call("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def value(self, expression: str) -> Any:
        """Returns what an expression is in the page, as JSON has it."""
        told = self._call(
            "script.evaluate",
            expression=f"JSON.stringify({expression})",
            target={"context": self._tab},
            awaitPromise=True,
        )
        assert told["type"] == "success", told
        return json.loads(told["result"].get("value", "null"))

    def until(self, expression: str) -> None:
        """Waits until an expression is true in the page."""
        end = time.monotonic() + WAIT
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < end, f"never so: {expression}; {self.said}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self._call(
            "input.performActions", context=self._tab, actions=[{"type": "key", "id": "keys", "actions": actions}]
        )

    def _call(self, method: str, **params: Any) -> Any:
        self._count += 1
        self._connection.send(json.dumps({"id": self._count, "method": method, "params": params}))
        while True:
            told = json.loads(self._connection.recv(WAIT))
            if told.get("method") == "log.entryAdded":
                self.said.append(str(told["params"]["text"]))
            elif told.get("method") == "network.beforeRequestSent":
                self.asked.append(told["params"]["request"]["url"])
            elif told.get("id") == self._count:
                assert told["type"] == "success", told
                return told["result"]


@contextmanager
def started_firefox(command: str, folder: Path) -> Iterator[Firefox]:
    """Starts a Firefox with a profile of its own in a folder."""
    log, profile = folder / "firefox.log", folder / "profile"
    profile.mkdir()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [command, "--headless", "--no-remote", "--remote-debugging-port", "0", "--profile", str(profile)],
            stdout=file,
            stderr=file,
            env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "MOZ_DISABLE_CONTENT_SANDBOX": "1"},
        )
    try:
        end = time.monotonic() + WAIT
        while not (found := LISTENING.search(log.read_text(errors="replace"))):
            gone = process.poll() is not None or time.monotonic() > end
            assert not gone, log.read_text(errors="replace")
            time.sleep(0.05)
        with connect(f"{found.group(1)}/session", max_size=None) as connection:
            yield Firefox(connection)
    finally:
        process.kill()
        process.wait()
