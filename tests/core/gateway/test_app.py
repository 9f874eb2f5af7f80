"""The gateway over real connections: keys, paths, sizes, long waits, clients that go away."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from patience import PATIENCE, wait_for
from reply_samples import events_of
from scripted_desk import KEY, MODEL, OTHER_KEY, ScriptedDesk, said, served

from grpo.core.gateway.app import LARGE, MOST_OPEN, MOST_READ
from grpo.core.gateway.connection import MOST_BYTES
from grpo.core.gateway.conversation import Ask, Refused, Reply

pytestmark = pytest.mark.slow

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COUNT = f"{MESSAGES}/count_tokens"
USER = [{"role": "user", "content": "one two"}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": MODEL, "messages": USER},
    RESPONSES: {"model": MODEL, "input": USER},
    MESSAGES: {"model": MODEL, "messages": USER, "max_tokens": 9},
}
BEARER = {"authorization": f"Bearer {KEY}"}


@contextmanager
def connected(url: str) -> Iterator[http.client.HTTPConnection]:
    """Opens a connection."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE)
    try:
        yield connection
    finally:
        connection.close()


def send(
    url: str, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str | None = None
) -> tuple[int, Any]:
    """Sends a request; returns the status, and the JSON or the bytes of the answer."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    with connected(url) as connection:
        connection.request(
            method or ("GET" if data is None else "POST"), path, data, BEARER if headers is None else headers
        )
        answer = connection.getresponse()
        content = answer.read()
        is_json = answer.headers["content-type"] == "application/json" and content
        return answer.status, json.loads(content) if is_json else content


def kept_waiting(desk: ScriptedDesk, url: str, path: str, stream: bool) -> socket.socket:
    """Sends a request that the desk does not answer yet; returns its connection."""
    waiting = desk.waiting
    data = json.dumps({**BODIES[path], "stream": stream}).encode()
    place = urlsplit(url)
    connection = socket.create_connection((place.hostname, place.port), PATIENCE)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    assert wait_for(lambda: desk.waiting == waiting + 1)
    return connection


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_each_api_answers_with_what_the_desk_says(path: str, stream: bool) -> None:
    desk = ScriptedDesk([said("hé")])
    with served(desk) as url:
        status, answer = send(url, path, {**BODIES[path], "stream": stream})
    assert status == 200
    assert "h\\u00e9" in (answer.decode() if stream else json.dumps(answer))
    assert (desk.asked[0][0], desk.last.model, desk.last.stream) == (KEY, MODEL, stream)
    assert [answer.deliveries for answer in desk.answers] == [1]


@pytest.mark.parametrize(
    ("prefix", "headers", "status"),
    [
        ("", {"authorization": f"bearer {KEY}"}, 200),
        ("", {"x-api-key": KEY}, 200),
        ("", {"authorization": "Bearer dummy", "x-api-key": KEY}, 200),
        (f"/r/{KEY}", {}, 200),
        (f"/r/{KEY}", {"authorization": "Bearer dummy"}, 200),
        ("", {}, 401),
        ("", {"authorization": "Bearer "}, 401),
        ("", {"authorization": f"Basic {KEY}"}, 401),
        ("", {"authorization": f"Bearer {KEY}x"}, 401),
        ("/r/wrong", {"authorization": f"Bearer {KEY}"}, 401),
    ],
)
def test_a_key_is_in_the_path_or_in_a_header(prefix: str, headers: dict[str, str], status: int) -> None:
    desk = ScriptedDesk()
    with served(desk) as url:
        for path, body in {**BODIES, COUNT: BODIES[MESSAGES]}.items():
            assert send(url, prefix + path, body, headers)[0] == status
        assert send(url, f"{prefix}/v1/models", headers=headers)[0] == status
        assert send(url, f"{prefix}/v1/models/{MODEL}", headers=headers)[0] == status
    assert [key for key, _ in desk.asked] == ([KEY] * 3 if status == 200 else [])


def test_an_unknown_key_is_refused_before_its_body_is_read() -> None:
    with served(ScriptedDesk()) as url, connected(url) as connection:
        connection.putrequest("POST", CHAT)
        connection.putheader("content-length", str(MOST_BYTES))
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 401
        assert "'x-api-key: KEY'" in json.loads(answer.read())["error"]["message"]


def test_tokens_are_counted() -> None:
    with served(ScriptedDesk()) as url:
        assert send(url, COUNT, BODIES[MESSAGES]) == (200, {"input_tokens": 2})
        assert send(url, COUNT, {"messages": []})[0] == 400


def test_what_is_nested_too_deeply_for_the_desk_is_refused() -> None:
    with served(ScriptedDesk([RecursionError(), said("yes")])) as url:
        status, error = send(url, CHAT, BODIES[CHAT])
        assert (status, error["error"]["message"][:33]) == (400, "The request is nested too deeply.")
        assert send(url, CHAT, BODIES[CHAT])[0] == 200


def test_models() -> None:
    with served(ScriptedDesk()) as url:
        status, models = send(url, "/v1/models")
        assert (status, models["data"][0]["id"], models["first_id"]) == (200, MODEL, MODEL)
        assert send(url, f"/v1/models/{MODEL}")[1]["id"] == MODEL
        status, error = send(url, "/v1/models/gpt-5")
        assert (status, error["error"]["code"]) == (404, "model_not_found")
        assert MODEL in error["error"]["message"]


def test_the_root_is_there_and_shows_no_more_than_paths() -> None:
    with served(ScriptedDesk()) as url:
        assert send(url, "/", method="HEAD", headers={}) == (200, b"")
        assert send(url, f"/r/{KEY}", method="HEAD", headers={})[0] == 200
        assert send(url, f"/r/{KEY}/", method="HEAD", headers={})[0] == 200
        assert send(url, "/r/wrong/", method="HEAD", headers={})[0] == 401
        assert [*send(url, "/", headers={})[1]] == ["paths"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", f"{CHAT}/", 404),
        ("GET", f"/r/{KEY}/../v1/reward", 404),
        ("POST", f"/r/{KEY}/r/{OTHER_KEY}{CHAT}", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("OPTIONS", CHAT, 405),
    ],
)
def test_other_paths_name_those_that_there_are(method: str, path: str, status: int) -> None:
    desk = ScriptedDesk()
    with served(desk) as url:
        got, error = send(url, path, method=method)
        assert got == status
        assert desk.refused == [(KEY, error["error"]["message"])]
        assert "POST /v1/messages" in error["error"]["message"]
        _, error = send(url, path, method=method, headers={"anthropic-version": "2023-06-01"})
        assert error["type"] == "error"


@pytest.mark.parametrize("path", [*BODIES, COUNT])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"messages": 1, "input": 1}', b"[" * 10**6])
def test_a_malformed_body_is_refused_in_the_form_of_the_api(path: str, data: bytes) -> None:
    desk = ScriptedDesk()
    with served(desk) as url:
        status, error = send(url, path, data)
    assert status == 400
    assert error["error"]["type"] == "invalid_request_error"
    assert "Send a" in error["error"]["message"]
    assert error.get("type") == ("error" if path.startswith(MESSAGES) else None)
    assert not desk.asked
    assert desk.refused == [(KEY, error["error"]["message"])]


@pytest.mark.parametrize("size", [MOST_BYTES + 1, 20 << 20, 50 << 20])
@pytest.mark.parametrize("declared", [True, False])
def test_too_large_a_body_is_refused(size: int, declared: bool) -> None:
    desk = ScriptedDesk()
    with served(desk) as url, connected(url) as connection:
        parts = (b"x" * (1 << 20) for _ in range(-(-size >> 20)))
        headers = {**BEARER, "content-length": str(-(-size >> 20) << 20)} if declared else BEARER
        connection.request("POST", MESSAGES, parts, headers, encode_chunked=not declared)
        answer = connection.getresponse()
        assert answer.status == 413
        assert json.loads(answer.read())["error"]["type"] == "request_too_large"
        assert send(url, MESSAGES, BODIES[MESSAGES])[0] == 200
    assert len(desk.asked) == 1


def test_a_body_as_large_as_the_limit_is_read() -> None:
    desk = ScriptedDesk()
    text = "x" * (MOST_BYTES - 100)
    with served(desk) as url:
        assert send(url, CHAT, {"messages": [{"role": "user", "content": text}]})[0] == 200
    assert desk.last.messages[0].text == text


def test_a_compressed_body_is_refused() -> None:
    with served(ScriptedDesk()) as url:
        status, error = send(url, CHAT, b"\x1f\x8b", {**BEARER, "content-encoding": "gzip"})
    assert status == 400
    assert "Send it without 'Content-Encoding'" in error["error"]["message"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 401, 404])
def test_what_the_desk_refuses_has_its_status(path: str, stream: bool, status: int) -> None:
    with served(ScriptedDesk([Refused(status, "The episode has ended.", "ended")])) as url:
        got, error = send(url, path, {**BODIES[path], "stream": stream})
    assert got == status
    assert error["error"]["message"] == "The episode has ended."


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_is_kept_open_while_the_desk_thinks(path: str) -> None:
    desk = ScriptedDesk(shut=True)
    with served(desk, pause=0.01) as url:
        connection = kept_waiting(desk, url, path, stream=True)
        received = b""
        while received.count(b": waiting\n\n") < 3:
            received += connection.recv(4096)
        assert b" 200 OK\r\n" in received
        desk.shut = False
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(4096)
        connection.close()
    assert b"yes" in received
    assert desk.answers[0].deliveries == 1


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("error", [Refused(400, "No room.", "context_length_exceeded"), ZeroDivisionError("a bug")])
def test_a_late_refusal_is_an_event(path: str, error: Exception) -> None:
    desk = ScriptedDesk([error], shut=True)
    with served(desk, pause=0.01) as url, connected(url) as connection:
        connection.request("POST", path, json.dumps({**BODIES[path], "stream": True}), BEARER)
        answer = connection.getresponse()
        assert answer.status == 200
        desk.shut = False
        name, data = events_of(answer.read())[-1]
    assert ("No room." if isinstance(error, Refused) else "The gateway broke") in data["error"]["message"]
    assert name == ("" if path == CHAT else "error")


@pytest.mark.parametrize("path", BODIES)
def test_a_bug_is_a_500_that_asks_for_no_retry(path: str) -> None:
    with served(ScriptedDesk([ZeroDivisionError("a bug"), said("yes")])) as url, connected(url) as connection:
        connection.request("POST", path, json.dumps(BODIES[path]), BEARER)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["x-should-retry"]) == (500, "false")
        assert "a bug" not in json.loads(answer.read())["error"]["message"]
        connection.request("POST", path, json.dumps(BODIES[path]), BEARER)
        assert connection.getresponse().status == 200


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("abrupt", [False, True])
def test_a_client_that_goes_away_cancels_its_request(path: str, stream: bool, abrupt: bool) -> None:
    desk = ScriptedDesk(shut=True)
    with served(desk, pause=0.01) as url:
        connection = kept_waiting(desk, url, path, stream)
        if abrupt:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        assert wait_for(lambda: desk.cancelled == 1)
        assert desk.waiting == 0
        desk.shut = False
        assert send(url, path, BODIES[path])[0] == 200
    assert [answer.deliveries for answer in desk.answers] == [1]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_nobody_took_is_not_delivered(stream: bool) -> None:
    """It is larger than what the system keeps of it for a client that does not read."""
    desk = ScriptedDesk([said("x" * (32 << 20))], shut=True)
    with served(desk) as url:
        connection = kept_waiting(desk, url, CHAT, stream)
        desk.shut = False
        assert connection.recv(4096)
        connection.close()
        assert send(url, "/v1/models")[0] == 200
    assert [answer.deliveries for answer in desk.answers] == [0]


def test_a_client_that_leaves_as_its_answer_is_made_has_not_received_it() -> None:
    closed = threading.Event()
    connections: list[socket.socket] = []

    def leave(ask: Ask) -> Reply:
        connections[0].close()
        closed.set()
        return said("yes")

    desk = ScriptedDesk([leave], shut=True)
    with served(desk) as url:
        connections.append(kept_waiting(desk, url, CHAT, stream=False))
        desk.shut = False
        assert closed.wait(PATIENCE)
        assert send(url, "/v1/models")[0] == 200
    assert [answer.deliveries for answer in desk.answers] == [0]


def test_one_key_has_at_most_so_many_open_requests() -> None:
    desk = ScriptedDesk(shut=True)
    with served(desk) as url:
        streams = [kept_waiting(desk, url, MESSAGES, stream=True) for _ in range(MOST_OPEN)]
        for _ in range(100 - MOST_OPEN):
            status, error = send(url, MESSAGES, {**BODIES[MESSAGES], "stream": True})
            assert (status, error["error"]["type"]) == (400, "invalid_request_error")
            assert "64 requests of this key are open" in error["error"]["message"]
        other = threading.Thread(target=send, args=(url, CHAT, BODIES[CHAT], {"x-api-key": OTHER_KEY}))
        other.start()
        assert wait_for(lambda: desk.waiting == MOST_OPEN + 1)
        streams.pop().close()
        assert wait_for(lambda: desk.cancelled == 1)
        streams.append(kept_waiting(desk, url, MESSAGES, stream=True))
        desk.shut = False
        other.join()
        for stream in streams:
            assert stream.recv(12) == b"HTTP/1.1 200"
            stream.close()


def test_bodies_that_never_end_and_large_ones_hold_back_no_other_key() -> None:
    with served(ScriptedDesk()) as url, ExitStack() as stack:
        for _ in range(MOST_READ + 1):
            half = stack.enter_context(connected(url))
            half.putrequest("POST", CHAT)
            for name, value in {**BEARER, "content-length": "100"}.items():
                half.putheader(name, value)
            half.endheaders(b"{")
        large = {**BODIES[CHAT], "junk": ["x" * 100] * (3 * LARGE // 100)}
        for body in (BODIES[CHAT], large):
            assert send(url, CHAT, body, {"x-api-key": OTHER_KEY})[0] == 200


def test_a_program_without_a_key_cannot_fill_the_requests_of_one() -> None:
    desk = ScriptedDesk()
    with served(desk) as url:
        for _ in range(MOST_OPEN + 1):
            assert send(url, CHAT, BODIES[CHAT], {})[0] == 401
        assert send(url, CHAT, BODIES[CHAT])[0] == 200


def test_several_answers_to_one_request() -> None:
    with served(ScriptedDesk()) as url:
        _, answer = send(url, CHAT, {**BODIES[CHAT], "n": 3})
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
