"""What an upload needs of the Hugging Face hub's HTTP API, on this machine: requests in, repositories out."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_standinstandinstandin"
OWNER = "ann"


@dataclass
class Repo:
    """A repository: branches of files, and what was committed last."""

    private: bool = False
    branches: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {".gitattributes": b""}})
    messages: list[str] = field(default_factory=list)

    def sha(self, branch: str) -> str:
        """Returns the commit that a branch is at, by its content."""
        files = sorted((name, hashlib.sha1(data).hexdigest()) for name, data in self.branches[branch].items())
        return hashlib.sha1(json.dumps([branch, len(self.messages), files]).encode()).hexdigest()


@dataclass
class Hub:
    """What the stand-in holds, and how it shall fail.

    Attributes:
        url: its address.
        repos: by "owner/name".
        blobs: large files that have arrived, by digest.
        uploads: digests in the order in which they were sent.
        requests: "METHOD path" of all.
        fails: a part of a path to the (status, message) that it is answered with.
        before_commit: called when the commit arrives.
    """

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    uploads: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    fails: dict[str, tuple[int, str]] = field(default_factory=dict)
    before_commit: Any = None

    def files(self, repo: str, branch: str = "main") -> dict[str, bytes]:
        """Returns the files of a branch."""
        return self.repos[repo].branches[branch]


@contextmanager
def hub_stand_in() -> Iterator[Hub]:
    """Serves a hub until the block ends."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            self._answer("GET")

        def do_HEAD(self) -> None:
            self._answer("HEAD")

        def do_POST(self) -> None:
            self._answer("POST")

        def do_PUT(self) -> None:
            self._answer("PUT")

        def _answer(self, method: str) -> None:
            body, path = self._body(), unquote(urlsplit(self.path).path)
            hub.requests.append(f"{method} {path}")
            for part, (status, message) in hub.fails.items():
                if part in path:
                    return self._send(status, {"error": message})
            if method == "PUT":  # of storage, which takes a signed address and no token
                digest = path.rsplit("/", 1)[1]
                assert hashlib.sha256(body).hexdigest() == digest
                hub.blobs[digest] = body
                hub.uploads.append(digest)
                return self._send(200, {})
            if self.headers.get("authorization") != f"Bearer {TOKEN}":
                return self._send(401, {"error": "Invalid credentials"})
            status, value = _handled(hub, path, body)
            return self._send(status, value)

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("transfer-encoding", ""):
                return self.rfile.read(int(self.headers.get("content-length") or 0))
            found = b""
            while size := int(self.rfile.readline(), 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found

        def _send(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def _handled(hub: Hub, path: str, body: bytes) -> tuple[int, Any]:
    if path == "/api/validate-yaml":
        content = json.loads(body)["content"]
        return (200, {"errors": [], "warnings": []}) if content.startswith("---\n") else (400, {"errors": []})
    if path == "/api/repos/create":
        asked = json.loads(body)
        name = f"{asked.get('organization') or OWNER}/{asked['name']}"
        status = 409 if name in hub.repos else 200
        hub.repos.setdefault(name, Repo(private=asked.get("visibility") == "private"))
        return status, {"url": f"{hub.url}/{name}"}
    if path.endswith(".git/info/lfs/objects/batch"):
        return 200, {"transfer": "basic", "objects": [_object(hub, one) for one in json.loads(body)["objects"]]}
    parts = path.removeprefix("/api/models/").split("/", 3)
    name, what, rest = "/".join(parts[:2]), parts[2] if len(parts) > 2 else "", parts[3] if len(parts) > 3 else ""
    repo = hub.repos.get(name)
    if repo is None:
        return 404, {"error": "Repository not found"}
    if what == "branch":
        if rest in repo.branches:
            return 409, {"error": "Reference already exists"}
        repo.branches[rest] = dict(repo.branches["main"])
        return 200, {}
    branch = rest or "main"
    if branch not in repo.branches:
        return 404, {"error": "Revision not found"}
    files = repo.branches[branch]
    if what in ("", "revision"):
        siblings = [{"rfilename": one} for one in files]
        return 200, {"id": name, "private": repo.private, "sha": repo.sha(branch), "siblings": siblings}
    if what == "preupload":
        return 200, {"files": [_mode(files, one) for one in json.loads(body)["files"]]}
    assert what == "commit", path
    if hub.before_commit is not None:
        hub.before_commit()
    return _committed(hub, name, repo, branch, [json.loads(line) for line in body.splitlines()])


def _object(hub: Hub, asked: dict[str, Any]) -> dict[str, Any]:
    known = {"oid": asked["oid"], "size": asked["size"]}
    if asked["oid"] in hub.blobs:
        return known
    return {**known, "actions": {"upload": {"href": f"{hub.url}/storage/{asked['oid']}", "header": {}}}}


def _mode(files: dict[str, bytes], asked: dict[str, Any]) -> dict[str, Any]:
    mode = "lfs" if asked["path"].endswith(".safetensors") else "regular"
    found = {"path": asked["path"], "uploadMode": mode, "shouldIgnore": False}
    if asked["path"] in files:
        data = files[asked["path"]]
        blob = b"blob %d\0" % len(data) + data
        found["oid"] = hashlib.sha256(data).hexdigest() if mode == "lfs" else hashlib.sha1(blob).hexdigest()
    return found


def _committed(hub: Hub, name: str, repo: Repo, branch: str, lines: list[Any]) -> tuple[int, Any]:
    header = lines[0]["value"]
    if header.get("parentCommit") not in (None, repo.sha(branch)):
        return 412, {"error": "A commit has happened since. Please refresh and try again."}
    for line in lines[1:]:
        value = line["value"]
        if line["key"] == "lfsFile":
            repo.branches[branch][value["path"]] = hub.blobs[value["oid"]]
        else:
            assert line["key"] == "file"
            repo.branches[branch][value["path"]] = base64.b64decode(value["content"])
    repo.messages.append(header["summary"])
    sha = repo.sha(branch)
    return 200, {"commitUrl": f"{hub.url}/{name}/commit/{sha}", "commitOid": sha}
