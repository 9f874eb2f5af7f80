"""The server's thread, its limits and whom it answers, by raw sockets of hostile callers."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE, wait_for
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from grpo.core.http.guard import routed
from grpo.core.http.limits import Callers, Limits, is_loopback
from grpo.core.http.serving import HttpServer, bound

pytestmark = pytest.mark.slow

SMALL = Limits(
    connections=8,
    head_bytes=2**12,
    head_fields=20,
    head_seconds=0.5,
    body_bytes=100,
    body_bytes_of={"/stream": None},
    linger=0.2,
    idle=1,
)
released = threading.Event()
"""What the answer to /endless waits for."""


async def length(request: Request) -> Response:
    return JSONResponse({"length": len(await request.body())})


async def stream(request: Request) -> Response:
    size = 0
    async for part in request.stream():
        size += len(part)
    return JSONResponse({"length": size})


async def unread(request: Request) -> Response:
    return PlainTextResponse("not read")


async def endless(request: Request) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 2**16
            await asyncio.sleep(0.001)

    return StreamingResponse(lines())


async def breaks(request: Request) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        yield b"the first half"
        raise RuntimeError("no second half")

    return StreamingResponse(lines())


async def fails(request: Request) -> Response:
    raise RecursionError("too deep \x1b[31m")


async def refuses(request: Request) -> Response:
    raise HTTPException(409, "it is busy: ask again later")


APP = routed(
    [
        Route("/length", length, methods=["GET", "POST"]),
        Route("/stream", stream, methods=["POST"]),
        Route("/unread", unread, methods=["POST"]),
        Route("/endless", endless),
        Route("/breaks", breaks),
        Route("/fails", fails),
        Route("/refuses", refuses),
    ]
)


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with HttpServer(APP, bound("127.0.0.1", 0), limits=SMALL) as running:
        yield running


def answer_to(server: HttpServer, data: bytes) -> bytes:
    """Sends bytes and reads until the server hangs up."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        with suppress(ConnectionError):
            connection.sendall(data)
        with suppress(ConnectionError):
            while part := connection.recv(2**16):
                answer += part
    return answer


def ask(server: HttpServer, line: str, *headers: str, body: bytes = b"") -> tuple[int, str]:
    """Sends a request and returns its status and what it is answered with."""
    lines = [f"{line} HTTP/1.1", *(headers or ["Host: localhost"]), "Connection: close"]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    head, _, rest = answer_to(server, "\r\n".join([*lines, "", ""]).encode("latin-1") + body).partition(b"\r\n\r\n")
    return int(head.split()[1]), rest.decode()


@pytest.mark.core
def test_the_address_is_known_at_once_and_answered_from_the_start_to_the_end() -> None:
    listener = bound("127.0.0.1", 0)
    address = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    server = HttpServer(APP, listener)
    assert server.port == address[1]
    server.start()
    assert ask(server, "GET /length") == (200, '{"length":0}')
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    assert not any(thread.name == "http server" for thread in threading.enumerate())


def test_a_server_that_never_started_lets_go_of_its_address() -> None:
    listener = bound("127.0.0.1", 0)
    port = listener.getsockname()[1]
    HttpServer(APP, listener).stop()
    bound("127.0.0.1", port).close()


def test_an_address_that_others_listen_on_is_an_error_of_the_caller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        bound("127.0.0.1", other.getsockname()[1])
    early = bound("127.0.0.1", 0)
    late = bound("127.0.0.1", early.getsockname()[1])  # both may take it until one listens
    with (
        HttpServer(APP, early),
        pytest.raises(OSError, match="in use"),
        HttpServer(APP, late),
    ):
        pytest.fail("two servers on one address")


def test_a_socket_file_is_served_too(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "calls"))
    with HttpServer(APP, listener), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "calls"))
        connection.sendall(b"GET /length HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 200 OK")


def test_a_stop_ends_streams_and_connections_that_nobody_ends() -> None:
    server = HttpServer(APP, bound("127.0.0.1", 0), limits=replace(SMALL, stop=0, head_seconds=PATIENCE))
    server.start()
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address) as reads, socket.create_connection(address) as idle:
        reads.sendall(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reads.recv(2**10).startswith(b"HTTP/1.1 200 OK")
        idle.sendall(b"GET /len")
        reading = threading.Thread(target=lambda: drained(reads))
        reading.start()
        server.stop()
        reading.join(PATIENCE)
        assert not reading.is_alive()
        assert idle.recv(1) == b""


def drained(connection: socket.socket) -> None:
    with suppress(ConnectionError):
        while connection.recv(2**16):
            pass


def test_neither_the_software_nor_its_version_is_named(server: HttpServer) -> None:
    answer = answer_to(server, b"GET /length HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"uvicorn" not in answer.lower()
    assert b"\r\nserver:" not in answer.lower()


@pytest.mark.core
@pytest.mark.parametrize(
    "host",
    [
        "rebound.example:8271",
        "127.0.0.1.rebound.example",
        "localhost.rebound.example",
        "127.0.0.1@rebound.example",
        "rebound.example@127.0.0.1",
        "192.168.0.7:8271",
        "0.0.0.0:8271",
        "[::",
        "",
    ],
)
def test_a_name_that_was_bound_to_the_loopback_is_not_answered(server: HttpServer, host: str) -> None:
    status, text = ask(server, "GET /length", f"Host: {host}")
    assert (status, "another host" in text) == (403, True)


@pytest.mark.parametrize("host", ["127.0.0.1:8271", "localhost", "LOCALHOST:1", "[::1]:8271", "127.0.0.5"])
def test_names_of_the_loopback_are_answered(server: HttpServer, host: str) -> None:
    assert ask(server, "GET /length", f"Host: {host}")[0] == 200


def test_a_request_without_one_host_is_refused(server: HttpServer) -> None:
    assert b" 400 " in answer_to(server, b"GET /length HTTP/1.1\r\n\r\n")
    assert b" 403 " in answer_to(server, b"GET /length HTTP/1.0\r\n\r\n")
    assert ask(server, "GET /length", "Host: localhost", "Host: rebound.example")[0] == 400


@pytest.mark.core
def test_other_names_are_answered_where_they_are_allowed() -> None:
    with HttpServer(APP, bound("127.0.0.1", 0), Callers(hosts={"gpu1.example"})) as named:
        asked = [ask(named, "GET /length", f"Host: {host}")[0] for host in ("GPU1.example:80", "[::1]", "gpu2.example")]
    with HttpServer(APP, bound("127.0.0.1", 0), Callers(token="secret", hosts=None)) as any_name:
        known = [("Host: gpu2.example", f"Authorization: {own}") for own in ("Bearer secret", "bearer secret")]
        asked += [ask(any_name, "GET /length", *headers)[0] for headers in known]
        for header in ("Bearer secre", "Bearer secrets", "Basic secret", "secret", "Bearer", "Bearer \xe9", ""):
            status, text = ask(any_name, "GET /length", "Host: localhost", f"Authorization: {header}")
            assert (status, "Authorization: Bearer TOKEN" in json.loads(text)["error"]) == (401, True)
    assert asked == [200, 200, 403, 200, 200]


@pytest.mark.core
def test_a_web_page_is_answered_where_it_is_of_this_server_alone(server: HttpServer) -> None:
    origins = ["http://localhost", "http://localhost:1", "https://localhost", "https://elsewhere.example", "null", ""]
    assert [ask(server, "GET /length", "Host: localhost", f"Origin: {own}")[0] for own in origins] == [403] * 6
    with HttpServer(APP, bound("127.0.0.1", 0), Callers(own_pages=True)) as pages:
        asked = [ask(pages, "GET /length", "Host: localhost", f"Origin: {own}")[0] for own in origins]
        both = ask(pages, "GET /length", "Host: localhost", "Origin: http://localhost", "Origin: null")[0]
    assert (asked, both) == ([200] + [403] * 5, 403)


@pytest.mark.parametrize("size", ["-1", "+2", "1_0", "0x2", "two", "", "9" * 400])
def test_a_size_that_is_none_is_refused(server: HttpServer, size: str) -> None:
    assert ask(server, "POST /length", "Host: localhost", f"Content-Length: {size}")[0] == 400


@pytest.mark.core
def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: HttpServer) -> None:
    status, text = ask(server, "POST /length", "Host: localhost", "Content-Length: 101")
    assert (status, "at most 100 bytes" in json.loads(text)["error"]) == (413, True)
    assert ask(server, "POST /length", body=b"x" * 100) == (200, '{"length":100}')
    assert ask(server, "POST /length", body=b"x" * 101)[0] == 413
    assert ask(server, "POST /stream", body=b"x" * 10**6) == (200, '{"length":1000000}')


def test_chunks_are_counted_as_they_arrive(server: HttpServer) -> None:
    chunked = ("Host: localhost", "Transfer-Encoding: chunked")

    def sent(*chunks: bytes) -> bytes:
        body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        head = "\r\n".join(["POST /length HTTP/1.1", *chunked, "Connection: close", "", ""]).encode()
        return answer_to(server, head + body + b"0\r\n\r\n")

    assert b'{"length":100}' in sent(b"x" * 60, b"x" * 40)
    assert b" 413 " in sent(*[b"x"] * 101)
    for chunk in (b"FFFFFFFFFFFFFFFFFFFFFF\r\n", b"-5\r\n", b"1_0\r\n"):
        head = "\r\n".join(["POST /length HTTP/1.1", *chunked, "", ""]).encode()
        assert answer_to(server, head + chunk).startswith(b"HTTP/1.1 400 ")


def test_an_answer_before_the_body_is_heard_although_the_caller_still_sends(server: HttpServer) -> None:
    for path in ("/unread", "/nothing", "/length"):
        answer = answer_to(
            server,
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2**19}\r\n\r\n".encode() + b"x" * 2**19,
        )
        assert answer.split()[1] in (b"200", b"404", b"413")
        assert b"connection: close" in answer


def test_a_body_that_never_ends_is_forgotten_for_a_moment_only(server: HttpServer) -> None:
    head = b"POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n"
    assert answer_to(server, head).endswith(b"not read")


def test_a_slow_body_is_given_up() -> None:
    limits = replace(SMALL, silence=0.2, body_bytes=1000, least_rate=10_000)
    with HttpServer(APP, bound("127.0.0.1", 0), limits=limits) as server:
        for path in ("/length", "/stream"):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n".encode()
            assert b" 408 " in answer_to(server, head + b"x")
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            connection.sendall(b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
            answers = trickled(connection, b"x")
    assert b" 408 " in answers, "each byte came in time, and they all together did not"


def trickled(connection: socket.socket, data: bytes) -> bytes:
    """Sends the same again and again until the server hangs up; returns what it said."""
    ended = threading.Event()

    def send() -> None:
        with suppress(OSError):
            while not ended.wait(0.05):
                connection.sendall(data)

    sending = threading.Thread(target=send)
    sending.start()
    answer = b""
    with suppress(ConnectionError):
        while part := connection.recv(2**16):
            answer += part
    ended.set()
    sending.join()
    return answer


@pytest.mark.core
@pytest.mark.parametrize("before", [b"", b"GET /length HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["first", "second"])
def test_headers_that_trickle_in_are_given_up(server: HttpServer, before: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(before + b"GET /length HTTP/1.1\r\nX: ")
        assert trickled(connection, b"a").count(b"HTTP/1.1 200 OK") == bool(before)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 2**20,
        b"GET /length HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 2**16,
        b"GET /length HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20 + b"Connection: close\r\n\r\n",
        b"GET /length HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 2**12 + b"\r\nConnection: close\r\n\r\n",
        b"GET /length?" + b"b" * 2**12 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
    ],
    ids=["endless line", "endless headers", "many headers", "large header", "long query", "TLS", "SSH"],
)
def test_heads_beyond_the_limits_are_refused(server: HttpServer, head: bytes) -> None:
    answer = answer_to(server, head)
    assert b" 200 " not in answer
    assert not answer or answer.split()[1] in (b"400", b"431")
    assert ask(server, "GET /length")[0] == 200


def test_idle_connections_make_room_and_those_with_a_request_stay() -> None:
    with HttpServer(APP, bound("127.0.0.1", 0), limits=replace(SMALL, head_seconds=PATIENCE)) as server:
        address = ("127.0.0.1", server.port)
        busy = [socket.create_connection(address, timeout=PATIENCE) for _ in range(SMALL.connections)]
        for connection in busy[1:]:
            connection.sendall(b"POST /stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n")
        states = server._server.server_state
        assert wait_for(lambda: len(states.tasks) == SMALL.connections - 1)
        idle = [socket.create_connection(address, timeout=PATIENCE) for _ in range(25)]
        for connection in (busy[0], *idle[:-1]):
            with suppress(ConnectionError):
                assert connection.recv(1) == b""
        assert b" 200 " in asked_on(idle[-1], b"GET /length HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all(b" 200 " in asked_on(connection, b"x") for connection in busy[1:])
        for connection in (*busy, *idle):
            connection.close()


def asked_on(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(2**10)


def test_one_connection_more_than_are_busy_is_hung_up() -> None:
    with HttpServer(APP, bound("127.0.0.1", 0), limits=replace(SMALL, connections=1)) as server:
        address = ("127.0.0.1", server.port)
        with socket.create_connection(address, timeout=PATIENCE) as busy:
            busy.sendall(b"POST /stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n")
            assert wait_for(lambda: len(server._server.server_state.tasks) == 1)
            assert answer_to(server, b"GET /length HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
            assert b" 200 " in asked_on(busy, b"x")


def test_who_does_not_read_its_answer_is_cut() -> None:
    with (
        HttpServer(APP, bound("127.0.0.1", 0), limits=replace(SMALL, silence=0.3, connections=1)) as server,
        socket.create_connection(("127.0.0.1", server.port)) as connection,
    ):
        connection.sendall(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert wait_for(lambda: b" 200 " in answer_to(server, b"GET /length HTTP/1.0\r\nHost: localhost\r\n\r\n"))


def test_requests_of_one_connection_are_answered_in_their_order(server: HttpServer) -> None:
    one = b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
    last = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = answer_to(server, one % (1, b"x") + one % (3, b"xxx") + last)
    assert [answer.index(text) for text in (b'{"length":1}', b'{"length":3}', b" 404 ")] == sorted(
        answer.index(text) for text in (b'{"length":1}', b'{"length":3}', b" 404 ")
    )


def test_errors_say_in_json_what_is_wrong_and_to_a_person_as_text(server: HttpServer) -> None:
    errors = [
        (404, "there is no GET /nothing here: look up what this server answers", "GET /nothing"),
        (405, "there is no DELETE /length here: look up what this server answers", "DELETE /length"),
        (404, "there is no GET /length/ here: look up what this server answers", "GET /length/"),
        (409, "it is busy: ask again later", "GET /refuses"),
        (500, "this could not be answered: RecursionError: too deep", "GET /fails"),
    ]
    for status, text, line in errors:
        assert ask(server, line) == (status, json.dumps({"error": text}, separators=(",", ":")))
        assert ask(server, line, "Host: localhost", "Accept: text/html,*/*") == (status, f"{text}\n")


def test_an_answer_that_fails_in_the_middle_is_not_taken_for_a_whole_one(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request("GET", "/breaks")
    with pytest.raises(http.client.IncompleteRead):
        connection.getresponse().read()
    connection.close()
    assert "an answer broke off: RuntimeError" in caplog.text


def test_callers_that_go_away_leave_nothing_behind(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    for data in (
        b"",
        b"GET /le",
        b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nx",
        b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(data)
    assert wait_for(lambda: not server._server.server_state.connections)
    assert wait_for(lambda: not server._server.server_state.tasks)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1", True),
        ("127.0.0.2", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.168.0.7", False),
        ("::ffff:10.0.0.1", False),
    ],
)
def test_the_loopback_is_told_from_what_others_reach(host: str, is_one: bool) -> None:
    assert is_loopback(host) is is_one
