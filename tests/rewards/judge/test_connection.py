"""The judge's server alone sees the material, and no reply fills the memory or takes for ever."""

from __future__ import annotations

import gzip
import json
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from grpo.plugins.errors import OptionError
from grpo.rewards.judge import endpoint as endpoint_module
from grpo.rewards.judge.connection import MOST_BYTES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("judge_key")]


@contextmanager
def serving(do: Any, *methods: str) -> Iterator[str]:
    """Serves requests of these methods with a function of the handler; other GETs find an empty list of models."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

        def do_GET(self) -> None:
            if "GET" in methods:
                do(self)
            else:
                answer(self, 200, b"{}")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            do(self)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that leaves is what these tests want."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(handler: Any, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(stand_in: Any, outcomes: Any, status: int) -> None:
    there = stand_in.url.removesuffix("/v1").replace("127.0.0.1", "localhost")
    with serving(lambda at: answer(at, status, Location=f"{there}/v1/chat/completions?key=1")) as url:
        [found] = outcomes(stand_in, ["Paris"], base_url=url, retries=2)
    assert found.kind == "failure"
    assert f"answers with a redirect ({status}) to {there}/v1/chat/completions." in found.reason
    assert "base_url=" in found.reason
    assert "key=1" not in found.reason
    assert stand_in.bodies == []


@pytest.mark.parametrize("where", ["/v2/models", "//[", "", "http://x.example/\x1b[0m"])
def test_an_endpoint_that_redirects_is_refused_when_it_is_named(stand_in: Any, bound: Any, where: str) -> None:
    with (
        serving(lambda at: answer(at, 308, Location=where), "GET") as url,
        pytest.raises(OptionError, match=r"answers with a redirect \(308\)") as caught,
    ):
        bound(stand_in, base_url=url)
    assert str(caught.value).isprintable()


def endless(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Connection", "close")
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def chunked(handler: Any) -> None:
    handler.send_response(500)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    while True:
        handler.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")


@pytest.mark.parametrize("reply", [endless, chunked])
def test_a_reply_without_an_end_is_a_failure(stand_in: Any, outcomes: Any, reply: Any) -> None:
    with serving(reply) as url:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        [found] = outcomes(stand_in, ["Paris"], base_url=url, retries=2)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.kind == "failure"
    assert f"more than {MOST_BYTES} bytes" in found.reason
    assert grown * 1024 < 20 * MOST_BYTES


def test_a_compressed_reply_is_not_unpacked(stand_in: Any, outcomes: Any) -> None:
    bomb = gzip.compress(b" " * (256 * 2**20), 9)
    with serving(lambda at: answer(at, 200, bomb, Content_Encoding="gzip")) as url:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        [found] = outcomes(stand_in, ["Paris"], base_url=url, retries=2)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.kind == "failure"
    assert "compressed" in found.reason
    assert grown < 100 * 2**10


def test_a_reply_that_nests_without_end_is_a_failure(stand_in: Any, outcomes: Any, judges: Any) -> None:
    deep = b"[" * 500_000
    stand_in.script = [deep, b'{"choices": ' + deep, json.dumps(judges["reply"](deep.decode())).encode()]
    found = outcomes(stand_in, ["a", "b", "c"], max_concurrency=1)
    assert [one.kind for one in found] == ["failure"] * 3


def test_an_endpoint_that_drips_is_refused_in_time(stand_in: Any, bound: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(endpoint_module, "_PROBE", 0.5)

    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(1000):
            handler.wfile.write(b" ")
            time.sleep(0.1)

    with serving(drip, "GET") as url, pytest.raises(OptionError, match="does not answer completely within 1 s"):
        bound(stand_in, base_url=url)
