"""The plugins of these tests, and a server on this machine that answers like the Hugging Face hub for one dataset.

The server serves a folder at an address for HF_ENDPOINT and speaks the part of the hub's HTTP
interface that `datasets.load_dataset` uses, so that the real client code runs without the internet.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from grpo.plugins.host import Host

_COMMIT = "0123456789abcdef0123456789abcdef01234567"


ServeDataset = Callable[[str, Path], contextlib.AbstractContextManager[str]]


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.discover()


@pytest.fixture(scope="session")
def serve_dataset() -> ServeDataset:
    """Serves a folder as the dataset of that name on a free port, for as long as the context lasts; gives the URL."""
    return _serve


@contextlib.contextmanager
def _serve(name: str, folder: Path) -> Iterator[str]:
    handler = type("Handler", (_Handler,), {"dataset": name, "folder": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    dataset: str
    folder: Path

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path.startswith(f"/datasets/{self.dataset}/resolve/"):
            self._file(path.removeprefix(f"/datasets/{self.dataset}/resolve/").partition("/")[2])
        elif path == f"/api/datasets/{self.dataset}" or path.startswith(f"/api/datasets/{self.dataset}/revision/"):
            names = [{"rfilename": entry["path"]} for entry in self._entries("") if entry["type"] == "file"]
            self._json({"id": self.dataset, "sha": _COMMIT, "siblings": names, "private": False, "tags": []})
        elif path.startswith(f"/api/datasets/{self.dataset}/tree/"):
            inside = path.removeprefix(f"/api/datasets/{self.dataset}/tree/").partition("/")[2]
            self._json(self._entries(inside))
        else:
            self._missing()

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def _entries(self, inside: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for path in sorted((self.folder / inside).rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            kind = "directory" if path.is_dir() else "file"
            size = 0 if path.is_dir() else path.stat().st_size
            entries.append({"type": kind, "path": name, "size": size, "oid": _oid(name)})
        return entries

    def _file(self, name: str) -> None:
        path = self.folder / name
        if not path.is_file():
            return self._missing()
        return self._send(path.read_bytes(), {"ETag": f'"{_oid(name)}"', "X-Repo-Commit": _COMMIT})

    def _json(self, value: object) -> None:
        self._send(json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _missing(self) -> None:
        known = f"/{self.dataset}/" in self.path
        self._send(b"", {"X-Error-Code": "EntryNotFound" if known else "RepoNotFound"}, status=404)

    def _send(self, body: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps the test output clean."""


def _oid(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()
