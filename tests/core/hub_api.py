"""A stand-in of the Hugging Face hub's HTTP API, as far as a push asks it; what arrived is kept."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class Hub(ThreadingHTTPServer):
    """The stand-in.

    Attributes:
        files: repository and branch to name to bytes, of the last commit.
        asked: method and path of each request.
        private: repositories that were made so.
        answers: a part of a path to the status that it is answered with.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.asked: list[str] = []
        self.private: list[str] = []
        self.answers: dict[str, int] = {}
        self.large: dict[str, bytes] = {}
        self.token = "hf_test"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        body = self._read()
        path = unquote(self.path.partition("?")[0])
        self.server.asked.append(f"POST {path}")
        for part, status in self.server.answers.items():
            if part in path:
                self._say({"error": f"refused {part}"}, status)
                return
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._say({"error": "Invalid credentials"}, 401)
        elif path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given['organization']}/{given['name']}" if given.get("organization") else given["name"]
            if given.get("private") or given.get("visibility") == "private":
                self.server.private.append(name)
            self._say({"url": f"{self.server.url}/{name}", "name": name, "id": name})
        elif path == "/api/validate-yaml":
            self._say({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            large = (".safetensors", ".html")
            files = [
                {"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(large) else "regular"}
                for one in json.loads(body)["files"]
            ]
            self._say({"files": [{**one, "shouldIgnore": False, "oid": None} for one in files]})
        elif path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.server.url}/large/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            self._say({"transfer": "basic", "objects": objects})
        elif "/branch/" in path:
            self._say({})
        elif "/commit/" in path:
            self._commit(path, body)
        else:
            self._say({"error": f"unknown {path}"}, 404)

    def do_PUT(self) -> None:
        self.server.asked.append(f"PUT {self.path}")
        self.server.large[self.path.rpartition("/")[2]] = self._read()
        self._say({})

    def do_GET(self) -> None:
        self.server.asked.append(f"GET {self.path}")
        self._say({"error": "nothing here"}, 404)

    do_HEAD = do_GET  # noqa: N815

    def _commit(self, path: str, body: bytes) -> None:
        name, _, branch = path.removeprefix("/api/models/").partition("/commit/")
        found = self.server.files.setdefault(f"{name}@{branch}", {})
        for line in body.decode().splitlines():
            one = json.loads(line)
            value = one["value"]
            if one["key"] == "file":
                found[value["path"]] = base64.b64decode(value["content"])
            elif one["key"] == "lfsFile":
                found[value["path"]] = self.server.large[value["oid"]]
        url = f"{self.server.url}/{name}/commit/0123456"
        self._say({"success": True, "commitOid": "0123456", "commitUrl": url})

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _say(self, value: Any, status: int = 200) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)


@contextmanager
def running() -> Iterator[Hub]:
    """While it lasts, the stand-in answers."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
