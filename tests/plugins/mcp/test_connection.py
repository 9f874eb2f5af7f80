"""Connections to servers, honest and hostile: what the policy is told, and what is a failure of the episode."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import wait_for

from grpo.plugins.errors import OptionError, TransientError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.mcp import connection
from grpo.plugins.mcp.connection import Connection, on_loop
from grpo.plugins.mcp.pool import ServerPool, pool_of
from grpo.plugins.mcp.servers import McpServer, read_servers
from grpo.plugins.mcp.tools import Seat, offered

pytestmark = pytest.mark.mcp
SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"
Call = Callable[..., str]


def server_of(*modes: str, **keys: Any) -> McpServer:
    [server] = read_servers(
        {"command": [sys.executable, str(SERVER), *modes], **keys},
        "test",
        lambda spec: Host.discover().session(spec).make,
    )
    return server


def connected(server: McpServer) -> Connection:
    async def connect() -> Connection:
        made = Connection(server)
        await made.ready()
        return made

    found: Connection = on_loop(connect()).result()
    return found


@pytest.fixture
def call() -> Iterator[Call]:
    """Calls a tool of one server that is started with the first call."""
    made: list[Connection] = []

    def first_then_same(name: str, *modes: str, **arguments: Any) -> str:
        if not made:
            made.append(connected(server_of(*modes, shown=200, seconds=20)))
        return made[0].call(name, arguments)

    yield first_then_same
    for each in made:
        each.close().result()


def test_a_call_is_answered_and_state_lasts_as_long_as_the_connection(call: Call) -> None:
    assert call("echo", text="hello") == "hello"
    assert [call("count"), call("count")] == ["1", "2"]
    other = connected(server_of())
    assert other.call("count", {}) == "1"
    other.close().result()


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("fails", '{"error": "the disk is full"}'),
        ("nothing", "(the tool returned nothing)"),
        ("data", '{"answer": 42}'),
        ("noisy", "done"),
        ("garbage", "after the garbage"),
        ("big_log", "after the log"),
        ("big", '{"error": "the result has more than 4194304 bytes"}'),
        ("no_such", '{"error": "no tool no_such"}'),
    ],
)
def test_what_the_policy_is_told(call: Call, name: str, answer: str) -> None:
    assert call(name) == answer
    assert call("echo", text="still there") == "still there"


def test_what_is_no_text_is_refused_in_words(call: Call) -> None:
    assert call("image").splitlines() == [
        "[an image (image/png) that cannot be shown here]",
        "a caption",
        "[a file (a/b) that cannot be shown here]",
        "a note",
        "[a link to the resource c: file:///c]",
    ]


def test_requests_of_a_server_are_refused_and_it_goes_on(call: Call) -> None:
    assert call("asks") == (
        "sampling/createMessage: Sampling not supported; elicitation/create: Elicitation not supported; "
        "roots/list: List roots not supported"
    )


def test_a_long_result_is_shown_by_its_ends(call: Call) -> None:
    shown = call("echo", text="a" * 500 + "z" * 500)
    assert shown == "a" * 100 + "\n[...]\n" + "z" * 100


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object()])
def test_arguments_that_cannot_be_sent_are_told(call: Call, value: object) -> None:
    assert call("echo", text=value).startswith('{"error": "the arguments cannot be sent')
    assert call("echo", text="still there") == "still there"


def test_other_ways_to_begin_are_met(call: Call) -> None:
    assert call("echo", "garbage", "pages", text="here") == "here"


def test_a_server_without_a_handshake_is_met(call: Call) -> None:
    assert call("echo", "newest", text="here") == "here"
    assert call("needs_user") == '{"error": "the tool asks for an answer of a user, and there is none here"}'


def test_a_server_that_ends_is_a_failure_that_quotes_it(call: Call) -> None:
    for _ in range(2):
        with pytest.raises(TransientError, match=r"is lost: its process ended. .*: no such luck"):
            call("crash")


def test_an_answer_that_is_none_is_a_failure(call: Call) -> None:
    with pytest.raises(TransientError, match="breaks the protocol: what it answered to 'broken' is no result"):
        call("broken")


def test_a_call_that_takes_too_long_is_told_while_the_server_answers() -> None:
    made = connected(server_of(seconds=1))
    assert made.call("slow", {}) == '{"error": "the call took longer than 1 s and was given up"}'
    assert made.call("echo", {"text": "still there"}) == "still there"
    made.close().result()


def test_a_server_that_hangs_is_a_failure_and_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ALIVE", 0.5)
    made = connected(server_of(seconds=1))
    with pytest.raises(TransientError, match="hangs: 'hang' gave no answer within 1 s, and nor did a ping"):
        made.call("hang", {})
    made.close().result()


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("refuses", r"did not start: .*there is no licence"),
        ("silent", r"did not start: it did not answer within 1 s"),
    ],
)
def test_a_server_that_does_not_start_is_a_failure(monkeypatch: pytest.MonkeyPatch, mode: str, why: str) -> None:
    if mode == "silent":
        monkeypatch.setattr(connection, "STARTING", 1.0)
    with pytest.raises(TransientError, match=why):
        connected(server_of(mode))
    with pytest.raises(OptionError, match=r"without its tools no run can start"):
        offered(server_of(mode))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_outlives_its_episode(call: Call) -> None:
    made = connected(server_of())
    daemon, [folder, *_] = int(made.call("daemon", {})), json.loads(made.call("where", {}))
    assert alive(daemon)
    made.close().result()
    assert not alive(daemon)
    assert not Path(folder).parent.exists()


_KILLED = """
import sys
sys.path[:0] = {path!r}
from test_connection import connected, server_of
made = connected(server_of())
print(made.call("daemon", {{}}), made._process._child.pid, flush=True)
made.call("hang", {{}})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_outlives_a_process_that_is_killed() -> None:
    code = _KILLED.format(path=[str(Path(__file__).parent), str(SERVER.parent), *sys.path])
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    daemon, guard = map(int, process.stdout.readline().split())
    assert alive(daemon)
    process.kill()
    process.communicate()
    assert wait_for(lambda: not alive(daemon) and not alive(guard))


def test_a_server_gets_a_folder_and_few_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hidden")
    monkeypatch.setenv("WANTED", "given")
    made = connected(server_of(variables=["WANTED"], environment={"PLACE": "{folder}/here"}, shown=20000))
    on_loop(_given(made, {"a/b.txt": "text"})).result()
    folder, *inside = json.loads(made.call("where", {}))
    variables = json.loads(made.call("variables", {}))
    assert inside == ["a"]
    assert Path(folder, "a", "b.txt").read_text() == "text"
    assert (variables["WANTED"], variables["PLACE"], "SECRET" in variables) == ("given", f"{folder}/here", False)
    made.close().result()


@pytest.mark.skipif(sys.platform != "linux", reason="the session local needs Linux")
def test_a_server_in_a_session_sees_its_files_and_nothing_else_and_ends_with_its_episode(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("secret")
    made = connected(server_of(session="local", environment={"PLACE": "{folder}/here"}, shown=20000))
    on_loop(_given(made, {"a/b.txt": "text"})).result()
    folder, *inside = json.loads(made.call("where", {}))
    assert (folder, inside) == ("/workspace", ["a"])
    assert json.loads(made.call("variables", {}))["PLACE"] == "/workspace/here"
    assert [made.call("count", {}), made.call("count", {})] == ["1", "2"]
    assert made.call("big", {}).startswith('{"error": "the result has more than')
    with pytest.raises(TransientError, match=r"its process ended.*no such luck"):
        made.call("crash", {})
    made.close().result()


def test_a_session_that_there_is_not_is_named() -> None:
    with pytest.raises(UsageError, match="no session 'cellar'"):
        server_of(session="cellar")


async def _given(made: Connection, files: dict[str, str]) -> None:
    made.give_files(files)


def test_a_pool_gives_no_server_twice_and_keeps_some_warm() -> None:
    of = ServerPool(server_of())
    assert len(of.tools()) > 10
    for _ in range(3):
        of.begin()
    first, second = of.take(), of.take()
    assert [first.call("count", {}), second.call("count", {})] == ["1", "1"]
    for each in (first, second):
        each.close().result()
        of.end(asked=True)
    of.end(asked=False)
    assert wait_for(lambda: len(of._spares) == 3)  # as many as were open at once
    third = of.take()
    assert third.call("count", {}) == "1"
    third.close().result()
    of.close()
    assert not of._spares


def test_an_episode_that_asks_in_vain_is_counted_once() -> None:
    [server] = read_servers({"command": [sys.executable, str(SERVER), "refuses"]}, "test")
    seat = Seat(server, {})
    for _ in range(2):
        with pytest.raises(TransientError, match="there is no licence"):
            seat.call("echo", {})
    seat.close()
    seat.close()
    assert wait_for(lambda: (pool_of(server)._expected, pool_of(server)._open) == (0, 0))
    assert wait_for(lambda: not pool_of(server)._starting)


def test_a_spare_that_died_is_passed_over() -> None:
    of = ServerPool(server_of())
    of.tools()
    spare = of._spares[0]
    with pytest.raises(TransientError):
        spare.call("crash", {})
    of.begin()
    taken = of.take()
    assert taken is not spare
    assert taken.call("count", {}) == "1"
    taken.close().result()
    of.end(asked=True)
    of.close()


@pytest.fixture
def address() -> Iterator[str]:
    """Returns the address of a server over HTTP."""
    process = subprocess.Popen(
        [sys.executable, str(SERVER.with_name("mcp_http_server.py"))], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    port = int(process.stdout.readline())

    def listens() -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    assert wait_for(listens)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.communicate()


def test_a_server_at_an_address_is_asked_and_a_broken_connection_is_a_failure(address: str) -> None:
    [server] = read_servers(address, "test")
    first, second = connected(server), connected(server)
    assert [first.call("counted", {}), second.call("counted", {})] == ["1", "2"]
    assert json.loads(first.call("fails", {}))["error"].startswith("Error executing tool fails")
    assert "error" in json.loads(first.call("no_such", {}))
    with pytest.raises(TransientError, match="is lost"):
        first.call("ends", {})
    for lost in (first, second):
        with pytest.raises(TransientError, match="is lost"):
            lost.call("counted", {})
        lost.close().result()
    with pytest.raises(TransientError, match="did not start: ConnectError"):
        connected(server)
