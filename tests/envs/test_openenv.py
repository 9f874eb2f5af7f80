"""`openenv:URL`: sessions on a server that speaks OpenEnv's protocol.

The server here conforms to openenv-core 0.3.0. Where GRPO_OPENENV_PYTHON names a Python that has the package, the tests
run against a server of the package too.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from grpo.envs.openenv_env import Field, RemoteEnv, ServerError, action_field
from grpo.plugins.errors import OptionError, PluginNotFound, TransientError
from grpo.plugins.host import Host

PACKAGE = os.environ.get("GRPO_OPENENV_PYTHON", "")
TEXT = {"properties": {"text": {"type": "string"}, "metadata": {"type": "object"}}, "required": ["text"]}


def served(session: ServerConnection) -> None:
    """The game of openenv_game.py, in the words of the protocol."""
    number = left = 0

    def seen(hint: str, reward: float | None, done: bool) -> dict[str, Any]:
        return {
            "type": "observation",
            "data": {"observation": {"hint": hint, "left": left}, "reward": reward, "done": done},
        }

    for raw in session:
        message = json.loads(raw)
        data = message.get("data", {})
        if message["type"] == "reset":
            number, left = random.Random(data.get("seed")).randint(1, 4), 3
            answer = seen("Guess a number from 1 to 4.", None, False)
        elif not isinstance(data.get("text"), str):
            answer = {"type": "error", "data": {"message": "no such action", "code": "VALIDATION_ERROR"}}
        elif data["text"] == "boom":
            answer = {"type": "error", "data": {"message": "it went boom", "code": "EXECUTION_ERROR"}}
        else:
            left -= 1
            won = data["text"] == str(number)
            answer = seen("Yes." if won else "No.", float(won), won or not left)
        session.send(json.dumps(answer))


def answered(schema: Any) -> Any:
    def process(connection: ServerConnection, request: Request) -> Response | None:
        if request.path != "/schema":
            return None
        body = json.dumps({"action": schema}).encode()
        return Response(HTTPStatus.OK, "OK", Headers({"Content-Length": str(len(body))}), body)

    return process


def started(schema: Any = TEXT) -> tuple[Server, str]:
    server = serve(served, "127.0.0.1", 0, process_request=answered(schema))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.socket.getsockname()[1]}"


@pytest.fixture(scope="module", params=["conforming", "package"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a running server."""
    if request.param == "conforming":
        server, address = started()
        yield address
        server.shutdown()
        return
    if not PACKAGE:
        pytest.skip("GRPO_OPENENV_PYTHON names no Python with openenv-core")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([PACKAGE, Path(__file__).with_name("openenv_game.py"), str(port)])
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None
        try:
            urllib.request.urlopen(f"{address}/schema", timeout=5).close()
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    yield address
    process.terminate()
    process.wait()


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.discover()


def test_a_server_is_a_sound_environment_of_texts(host: Host, url: str) -> None:
    bound = host.env(f"openenv:{url}")
    assert bound.name == f"openenv:{url}"
    env = bound.make()
    check_env(env, skip_render_check=True)
    shown, info = env.reset(seed=1)
    assert shown == "hint: Guess a number from 1 to 4.\nleft: 3"
    assert info["row"] == {"server": url}
    number = random.Random(1).randint(1, 4)
    wrong = number % 4 + 1
    assert env.step(f"Perhaps <action>{wrong}</action>")[:4] == ("hint: No.\nleft: 2", 0.0, False, False)
    assert env.step(f"<answer>{number}</answer>") == (
        "hint: Yes.\nleft: 1",
        1.0,
        True,
        False,
        {"readable": True, "success": True},
    )
    env.close()


def test_sessions_side_by_side_are_apart(host: Host, url: str) -> None:
    bound = host.env({"name": f"openenv:{url}", "options": {"show": "hint", "system": "Play."}})

    def won(seed: int) -> bool:
        env = bound.make()
        _, info = env.reset(seed=seed)
        assert [message["content"] for message in info["prompt"]] == ["Play.", "Guess a number from 1 to 4."]
        found = env.step(str(random.Random(seed).randint(1, 4)))[4]["success"]
        env.close()
        return bool(found)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(won, range(24)))


def test_an_error_of_the_environment_fails_and_the_session_goes_on(host: Host, url: str) -> None:
    env = host.env(f"openenv:{url}").make()
    env.reset(seed=0)
    with pytest.raises(ServerError, match="boom"):
        env.step("boom")
    assert env.step("9")[0].startswith("hint: No.")
    env.close()


def test_what_is_no_action_costs_a_turn(url: str) -> None:
    env = RemoteEnv(url, Field("", "object"), show=None, system="", most_turns=3, success=1.0, seconds=10.0)
    env.reset(seed=0)
    for text in ("no JSON", '<action>{"text": 5}</action>'):
        shown, reward, ended, cut, info = env.step(text)
        assert (reward, ended, cut, info["readable"]) == (0.0, False, False, False)
        assert "no action" in shown
    shown, _, _, cut, info = env.step('<action>{"text": "9"}</action>')
    assert (info["readable"], cut) == (True, True)
    env.close()


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        (TEXT, Field("text", "string")),
        ({"properties": {"row": {"type": "integer"}}}, Field("row", "integer")),
        (
            {"properties": {"code": {"type": "string"}, "seconds": {"type": "number"}}, "required": ["code"]},
            Field("code", "string"),
        ),
        ({"properties": {"note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, Field("note", "string")),
        (
            {"properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]},
            Field("", "object"),
        ),
    ],
)
def test_the_field_of_an_action_is_found_in_the_schema(schema: Any, field: Field) -> None:
    server, address = started(schema)
    try:
        assert action_field(address, None) == field
        with pytest.raises(OptionError, match="no field 'none'"):
            action_field(address, "none")
    finally:
        server.shutdown()


def test_a_server_that_is_not_there_is_named(host: Host) -> None:
    with pytest.raises(OptionError, match=r"no OpenEnv server answers at http://127.0.0.1:9/schema"):
        host.env("openenv:http://127.0.0.1:9").make()
    with pytest.raises(PluginNotFound, match="no address of a server"):
        host.env("openenv:localhost")
    env = RemoteEnv(
        "http://127.0.0.1:9", Field("text", "string"), show=None, system="", most_turns=3, success=1.0, seconds=2.0
    )
    with pytest.raises(TransientError, match="broke off"):
        env.reset(seed=0)
