"""Who may call a rollout server, and how much of a stranger's request it reads: by raw sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from patience import PATIENCE
from table_server import Running

from grpo.core.rollout.server import request
from grpo.core.rollout.server.client import state_of
from grpo.core.rollout.server.request import refuse_open
from grpo.core.rollout.server.serve import BYTES, RolloutServer
from grpo.plugins.errors import UsageError

pytestmark = pytest.mark.slow

PATHS = (("GET", "/state"), ("POST", "/claim"), ("POST", "/weights"), ("POST", "/join"), ("POST", "/generate"))


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running()
    yield running
    running.stop()


def call(running: Running, method: str, path: str, *headers: str, body: bytes = b"{}") -> tuple[int, bytes]:
    """Sends a request with these headers and no others than the protocol's own."""
    own = [f"Content-Type: {BYTES}", f"Grpo-Incarnation: {running.server.incarnation}", "Grpo-Handed: 0"]
    lines = [f"{method} {path} HTTP/1.1", *own, *headers]
    if not any(line.startswith(("Content-Length", "Transfer-Encoding")) for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=PATIENCE) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        answer = b""
        while part := connection.recv(2**16):
            answer += part
    return int(answer.split()[1]), answer


@pytest.mark.core
@pytest.mark.parametrize(
    "host",
    [
        ["Host: rebound.example:8271"],
        ["Host: 127.0.0.1.rebound.example"],
        ["Host: localhost.rebound.example"],
        ["Host: 127.0.0.1@rebound.example"],
        ["Host: 192.168.0.7:8271"],
        ["Host: 0.0.0.0:8271"],
        ["Host: [::"],
        ["Host:"],
        ["Host: 127.0.0.1", "Host: rebound.example"],
        [],
    ],
    ids=" ".join,
)
def test_without_a_token_a_name_that_was_bound_to_the_loopback_is_not_answered(
    server: Running, host: list[str]
) -> None:
    for method, path in PATHS:
        status, answer = call(server, method, path, *host)
        assert status == 403, path
        assert server.server.incarnation.encode() not in answer
    assert server.server.handed == 0


@pytest.mark.parametrize("host", ["127.0.0.1:8271", "localhost", "LOCALHOST:1", "[::1]:8271", "127.0.0.5"])
def test_names_of_the_loopback_are_answered(server: Running, host: str) -> None:
    assert call(server, "GET", "/state", f"Host: {host}")[0] == 200


def test_no_web_page_is_answered_with_a_token_or_without(server: Running) -> None:
    guarded = Running(token="secret")
    try:
        for running, known in ((server, "X: y"), (guarded, "Authorization: Bearer secret")):
            for origin in ("http://127.0.0.1:8271", "https://elsewhere.example", "null", ""):
                for method, path in PATHS:
                    assert call(running, method, path, "Host: 127.0.0.1", known, f"Origin: {origin}")[0] == 403
            assert running.server.handed == 0
        assert call(guarded, "GET", "/state", "Host: gpu1.example", "Authorization: Bearer secret")[0] == 200
    finally:
        guarded.stop()


@pytest.mark.parametrize("length", ["-1", "+2", "1_0", "0x2", "", "two", str(2**16 + 1), str(2**60), "9" * 400])
def test_a_size_is_looked_at_before_anything_is_read(server: Running, length: str) -> None:
    assert call(server, "POST", "/fingerprints", "Host: localhost", f"Content-Length: {length}", body=b"")[0] == 400
    assert state_of(server.url)["handed"] == 0


@pytest.mark.parametrize(
    "body", [b"FFFFFFFFFFFFFFFF\r\n", b"-5\r\n", b"1_0\r\n", b"8\r\n\x00\x00\x00\x10\0\0\0\0\r\n0\r\n\r\n"]
)
def test_chunks_and_frames_that_cannot_be_end_their_call_and_not_the_server(server: Running, body: bytes) -> None:
    status, answer = call(server, "POST", "/weights", "Host: localhost", "Transfer-Encoding: chunked", body=body)
    assert (status, b"ConnectionError" in answer) == (200, True)
    assert state_of(server.url)["handed"] == 1, "what arrived by half belongs to nobody"


@pytest.mark.parametrize("line", [b"GET /" + b"a" * 2**20, b"GET /state HTTP/1.1\r\n" + b"A: b\r\n" * 2**16])
def test_headers_have_a_largest_size(server: Running, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.server.port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(line)
            answer = connection.recv(2**16)
        except ConnectionError:  # it closed while we were still at it
            answer = b""
    assert b" 200 " not in answer
    assert state_of(server.url)["handed"] == 0


def test_headers_that_trickle_in_are_given_up(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and they all together do not."""
    monkeypatch.setattr(request, "HEAD_SECONDS", 0.5)
    ended = threading.Event()
    with socket.create_connection(("127.0.0.1", server.server.port), timeout=PATIENCE) as connection:

        def trickle() -> None:
            try:
                connection.sendall(b"GET /state HTTP/1.1\r\nX: ")
                while not ended.wait(0.05):
                    connection.sendall(b"a")
            except OSError:  # it hung up
                pass

        sending = threading.Thread(target=trickle)
        sending.start()
        try:
            with pytest.MonkeyPatch.context():
                assert connection.recv(1) == b""
        except ConnectionResetError:
            pass
        finally:
            ended.set()
            sending.join()
    assert state_of(server.url)["handed"] == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.7", "::ffff:10.0.0.1"])
def test_without_a_token_it_does_not_listen_where_others_reach(host: str) -> None:
    with pytest.raises(UsageError, match="anybody who reaches this port could replace the weights"):
        RolloutServer((host, 0), None)
    refuse_open(host, "secret")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_the_loopback_needs_no_token(host: str) -> None:
    refuse_open(host, None)
