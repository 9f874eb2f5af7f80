"""Who may call a rollout server, and how much of a stranger's request it reads: by raw sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from patience import PATIENCE, wait_for
from table_server import Running

from grpo.core.rollout.server.client import state_of
from grpo.core.rollout.server.serve import RolloutServer, refuse_open
from grpo.core.rollout.server.wire import BYTES, LARGEST_BODY
from grpo.plugins.errors import UsageError

pytestmark = pytest.mark.slow

PATHS = (("GET", "/state"), *(("POST", path) for path in LARGEST_BODY))


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running()
    yield running
    running.stop()


def call(running: Running, method: str, path: str, *headers: str, body: bytes = b"{}") -> tuple[int, bytes]:
    """Sends a request with these headers and no others than the protocol's own."""
    own = [f"Content-Type: {BYTES}", f"Grpo-Incarnation: {running.server.incarnation}", "Grpo-Handed: 0"]
    lines = [f"{method} {path} HTTP/1.1", "Connection: close", *own, *headers]
    if not any(line.startswith(("Content-Length", "Transfer-Encoding")) for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=PATIENCE) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        answer = b""
        while part := connection.recv(2**16):
            answer += part
    return int(answer.split()[1]), answer


@pytest.mark.core
@pytest.mark.parametrize("host", [["Host: rebound.example:8271"], ["Host: 192.168.0.7:8271"], []], ids=" ".join)
def test_without_a_token_a_name_that_was_bound_to_the_loopback_is_not_answered(
    server: Running, host: list[str]
) -> None:
    for method, path in PATHS:
        status, answer = call(server, method, path, *host)
        assert status in (400, 403), path
        assert server.server.incarnation.encode() not in answer
    assert server.server.handed == 0


@pytest.mark.core
def test_no_web_page_is_answered_with_a_token_or_without(server: Running) -> None:
    guarded = Running(token="secret")
    try:
        for running, known in ((server, "X: y"), (guarded, "Authorization: Bearer secret")):
            for origin in (f"http://127.0.0.1:{running.server.port}", "https://elsewhere.example", "null", ""):
                for method, path in PATHS:
                    host = f"Host: 127.0.0.1:{running.server.port}"
                    assert call(running, method, path, host, known, f"Origin: {origin}")[0] == 403
            assert running.server.handed == 0
        assert call(guarded, "GET", "/state", "Host: gpu1.example", "Authorization: Bearer secret")[0] == 200
    finally:
        guarded.stop()


@pytest.mark.parametrize("path", [path for path, largest in LARGEST_BODY.items() if largest is not None])
def test_a_size_is_looked_at_before_anything_is_read(server: Running, path: str) -> None:
    for length in (str(2**28 + 1), str(2**60)):
        with socket.create_connection(("127.0.0.1", server.server.port), timeout=PATIENCE) as connection:
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
            assert connection.recv(2**16).startswith(b"HTTP/1.1 413 ")
    assert state_of(server.url)["handed"] == 0


def test_frames_that_cannot_be_end_their_call_and_not_the_server(server: Running) -> None:
    body = b"8\r\n\x00\x00\x00\x10\0\0\0\0\r\n0\r\n\r\n"
    status, answer = call(server, "POST", "/weights", "Host: localhost", "Transfer-Encoding: chunked", body=body)
    assert (status, b"ConnectionError" in answer) == (200, True)
    assert state_of(server.url)["handed"] == 1, "what arrived by half belongs to nobody"


@pytest.mark.parametrize("body", [b"FFFFFFFFFFFFFFFF\r\n", b"-5\r\n", b"1_0\r\n", b"8\r\n\0\0"])
def test_chunks_that_break_off_end_their_call_and_not_the_server(server: Running, body: bytes) -> None:
    own = f"Content-Type: {BYTES}\r\nGrpo-Incarnation: {server.server.incarnation}\r\nGrpo-Handed: 0\r\n"
    head = f"POST /weights HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{own}\r\n"
    with socket.create_connection(("127.0.0.1", server.server.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(2**16):
            pass
    assert wait_for(lambda: state_of(server.url)["handed"] == 1), "what arrived by half belongs to nobody"
    assert call(server, "POST", "/claim", "Host: localhost")[0] == 200, "the engine's thread is free again"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.7", "::ffff:10.0.0.1"])
def test_without_a_token_it_does_not_listen_where_others_reach(host: str) -> None:
    with pytest.raises(UsageError, match="anybody who reaches this port could replace the weights"):
        RolloutServer((host, 0), None)
    refuse_open(host, "secret")
