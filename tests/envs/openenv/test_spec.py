"""`openenv:URL`: sessions on a server of openenv itself, and what servers answer that know the protocol badly."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from patience import RUN
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from grpo.envs.openenv.env import Field, RemoteEnv, ServerError, action_field
from grpo.envs.openenv.tasks import offers_tasks, task_rows
from grpo.plugins.errors import DatasetError, OptionError, PluginNotFound, TransientError
from grpo.plugins.host import Host

HERE = Path(__file__).parent
SESSIONS = 8  # that openenv_game.py has room for
TEXT = {"properties": {"text": {"type": "string"}, "metadata": {"type": "object"}}, "required": ["text"]}


@pytest.fixture(scope="module", params=["openenv==0.10.0", "openenv-core==0.3.0"])
def packages(
    request: pytest.FixtureRequest, beside: Callable[[Path], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The environment variables of a Python that has the package, as it is and as it was."""
    pins = (HERE / "packages.txt").read_text()
    assert "openenv==0.10.0" in pins
    file = tmp_path_factory.mktemp("pins") / "packages.txt"
    file.write_text(pins.replace("openenv==0.10.0", request.param))
    return beside(file)


@pytest.fixture(scope="module")
def url(packages: dict[str, str]) -> Iterator[str]:
    """The address of the game on a server of the package."""
    with game(packages) as address:
        yield address


@contextmanager
def game(packages: dict[str, str], *words: str) -> Iterator[str]:
    """The address of a server of the package."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(HERE / "game.py"), str(port), str(SESSIONS), *words]
    process = subprocess.Popen(command, env=packages)
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + RUN
    try:
        while True:
            assert process.poll() is None
            try:
                urllib.request.urlopen(f"{address}/schema", timeout=60).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


@contextmanager
def answering(schema: Any = TEXT, *answers: str) -> Iterator[str]:
    """The address of a server with this schema of actions, whose sessions get these answers in turn, then the end."""

    def process(connection: ServerConnection, request: Request) -> Response | None:
        if request.path != "/schema":
            return None
        body = json.dumps({"action": schema}).encode()
        return Response(HTTPStatus.OK, "OK", Headers({"Content-Length": str(len(body))}), body)

    def session(connection: ServerConnection) -> None:
        for answer in answers:
            connection.recv()
            connection.send(answer)

    with serve(session, "127.0.0.1", 0, process_request=process) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"


def remote(url: str, field: Field = Field("text", "string"), seconds: float = 60.0) -> RemoteEnv:  # noqa: B008
    return RemoteEnv(url, field, show=None, system="", most_turns=3, success=1.0, seconds=seconds)


@pytest.mark.install
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


@pytest.mark.install
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


@pytest.mark.install
def test_an_error_of_the_environment_fails_and_the_session_goes_on(host: Host, url: str) -> None:
    env = host.env(f"openenv:{url}").make()
    env.reset(seed=0)
    with pytest.raises(ServerError, match="boom"):
        env.step("boom")
    assert env.step("9")[0].startswith("hint: No.")
    env.close()


@pytest.mark.install
def test_what_is_no_action_costs_a_turn(url: str) -> None:
    env = remote(url, Field("", "object"))
    env.reset(seed=0)
    for text in ("no JSON", '<action>{"text": 5}</action>'):
        shown, reward, ended, cut, info = env.step(text)
        assert (reward, ended, cut, info["readable"]) == (0.0, False, False, False)
        assert "no action" in shown
    shown, _, _, cut, info = env.step('<action>{"text": "9"}</action>')
    assert (info["readable"], cut) == (True, True)
    env.close()


@pytest.mark.install
def test_half_of_a_character_is_no_action(url: str) -> None:
    env = remote(url)
    env.reset(seed=0)
    assert env.step("\ud800")[4]["readable"] is False
    assert env.step("\U0001f600")[4]["readable"] is True
    env.close()


@pytest.mark.install
def test_a_server_without_room_says_what_to_do_and_a_closed_session_makes_room(url: str) -> None:
    with ExitStack() as open_ones:
        for seed in range(SESSIONS):
            env = remote(url)
            open_ones.callback(env.close)
            env.reset(seed=seed)
        one_more = remote(url)
        with pytest.raises(ServerError, match=f"{SESSIONS}/{SESSIONS} sessions.*max_concurrent_envs"):
            one_more.reset(seed=0)
    assert one_more.reset(seed=0)[0].startswith("hint: Guess")
    one_more.close()


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
            {"$defs": {"Way": {"enum": ["up"], "type": "string"}}, "properties": {"way": {"$ref": "#/$defs/Way"}}},
            Field("way", "string"),
        ),
        (
            {"properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]},
            Field("", "object"),
        ),
    ],
)
def test_the_field_of_an_action_is_found_in_the_schema(schema: Any, field: Field) -> None:
    with answering(schema) as address:
        assert action_field(address, None) == field
        with pytest.raises(OptionError, match="no field 'none'"):
            action_field(address, "none")


@pytest.mark.parametrize("schema", [["text"], {"properties": {"x": 1}}, {"properties": {"x": {"$ref": "#/$defs/X"}}}])
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with answering(schema) as address, pytest.raises(OptionError, match="no OpenEnv server answers"):
        action_field(address, None)


@pytest.mark.parametrize(
    "answer", ["", "hello", "[]", "3", '{"data": 5}', '{"data": {"reward": "much"}}', '{"data": {"reward": {}}}']
)
def test_an_answer_that_is_none_fails_and_ends_the_episode(answer: str) -> None:
    with answering(TEXT, '{"data": {"observation": {"hint": "Go."}}}', answer) as address:
        env = remote(address)
        assert env.reset(seed=0)[0] == "hint: Go."
        with pytest.raises(ServerError, match="not an answer to 'step'"):
            env.step("1")
        with pytest.raises(ResetNeeded):
            env.step("1")
        env.close()


def test_a_server_that_hangs_or_leaves_is_trouble_worth_a_retry() -> None:
    with answering(TEXT, '{"data": {"observation": "Go."}}') as address:
        env = remote(address)
        env.reset(seed=0)
        with pytest.raises(TransientError, match="broke off: ConnectionClosed"):
            env.step("1")
        assert env.reset(seed=0)[0] == "Go."
        env.close()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = remote(f"http://127.0.0.1:{silent.getsockname()[1]}", seconds=0.3)
        with pytest.raises(TransientError, match="broke off: TimeoutError"):
            env.reset(seed=0)


def test_a_server_that_is_not_there_is_named(host: Host) -> None:
    with pytest.raises(OptionError, match=r"no OpenEnv server answers at http://127.0.0.1:9/schema"):
        host.env("openenv:http://127.0.0.1:9").make()
    with pytest.raises(PluginNotFound, match="not an address of a server"):
        host.env("openenv:localhost")
    with pytest.raises(TransientError, match="broke off"):
        remote("http://127.0.0.1:9", seconds=2.0).reset(seed=0)


@pytest.mark.install
def test_tasks_of_a_server_are_rows_and_a_server_without_them_makes_its_own_episodes(
    host: Host, packages: dict[str, str], url: str
) -> None:
    assert host.env(f"openenv:{url}").rows("train") is None
    with game(packages, "tasks") as address:
        bound = host.env(f"openenv:{address}")
        train = bound.rows("train")
        if train is None:  # as it was before it had tasks
            assert bound.make().reset(seed=1)[0] == "hint: Task 0 of .\nleft: 3"
            return
        held_out = bound.rows("test")
        assert held_out is not None
        assert (len(train), len(held_out)) == (1200, 3)
        assert train[1101] == {"id": "train-1101", "number": 2, "split": "train", "index": 1101}
        env = bound.make()
        shown, info = env.reset(seed=5, options={"row": train[1101]})
        assert shown == "hint: Task 1101 of train.\nleft: 3"
        assert info["row"] == {**train[1101], "server": address}
        assert env.step("2")[1:3] == (1.0, True)
        env.close()


VALIDATED = """
import sys
from openenv.cli._validation import validate_running_environment
sys.exit(0 if validate_running_environment(sys.argv[1])["passed"] else 1)
"""


@pytest.mark.install
def test_the_server_that_is_played_here_passes_the_package_s_own_validation(packages: dict[str, str], url: str) -> None:
    assert subprocess.run([sys.executable, "-c", VALIDATED, url], env=packages, check=False).returncode == 0


@pytest.mark.parametrize("answer", ["", "[]", '{"detail": "no"}', '["Game"]'])
def test_a_server_that_does_not_tell_splits_has_no_tasks(answer: str) -> None:
    with answering(json.loads(answer or "{}")) as address:
        assert not offers_tasks(address)
        with pytest.raises(DatasetError, match="did not list its tasks"):
            task_rows(address, "train")
