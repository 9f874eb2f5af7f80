"""A small HTTP server for the reader at this machine: requests in, pages and states of runs out.

Theory of operation. It listens on the loopback alone. Every address begins with a secret that only the link has, so
other users and programs of the machine find nothing. A page of another site, open in the same browser, cannot read a
link; and should it learn one, a request that names any host but this machine (a domain that was turned round to the
loopback) or comes from another origin is refused. Changes need all of this, a POST with JSON, and a server that was
started to allow them; what it serves is never framed, cached or sent on as a referrer.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, urlsplit

from grpo.core.report.page import list_page, live_page
from grpo.core.text.printable import one_line
from grpo.core.watch.folder import WatchedFolder
from grpo.plugins.errors import RunError, UsageError

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost", "::1")  # with any port, for a tunnel has its own
LONGEST = 100_000  # bytes that a request may bring
SILENCE = 30.0  # seconds in which a request has to arrive
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class WatchServer(ThreadingHTTPServer):
    """Serves the runs of a folder.

    Args:
        folder: the runs.
        port: where to listen; 0: any free one.
        edit: readers may label, hide and delete runs.

    Raises:
        RunError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, folder: WatchedFolder, port: int, *, edit: bool = False) -> None:
        self.folder = folder
        self.edit = edit
        self.secret = secrets.token_urlsafe(24)
        try:
            super().__init__((LOOPBACK, port), _Request)
        except OSError as error:
            raise RunError(
                f"cannot listen on port {port}: {error.strerror}. Choose another with --port; 0 takes any free one."
            ) from None

    @property
    def link(self) -> str:
        """The address to open; whoever has it may do what this server does."""
        start = f"http://{LOOPBACK}:{self.server_port}/{self.secret}/"
        return start if self.folder.alone is None else f"{start}report?run={quote(self.folder.alone, safe='')}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a browser that went away in the middle of an answer."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Request(BaseHTTPRequestHandler):
    server: WatchServer
    timeout: ClassVar[float] = SILENCE
    server_version = "grpo"
    sys_version = ""

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes nothing: addresses hold the secret."""

    def _answered(self, answer: Any) -> None:
        try:
            answer(*self._admitted())
        except _Refused as refused:
            self._error(str(refused), refused.status)
        except UsageError as error:
            self._error(str(error), HTTPStatus.CONFLICT)
        except ConnectionError:  # whoever asked went away
            raise
        except Exception as error:  # of one run, and the others are still to be seen
            said = one_line(f"{type(error).__name__}: {error}", 300)
            self._error(f"this could not be answered: {said}.", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _admitted(self) -> tuple[str, dict[str, list[str]]]:
        """Returns what is asked for and with what, of a request that knows the secret.

        Raises:
            _Refused: it does not, or it comes from elsewhere.
        """
        host = self.headers.get("Host", "")
        try:
            name = urlsplit(f"//{host}").hostname
            address = urlsplit(self.path)
        except ValueError:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the request names no host.") from None
        if name not in HOSTS:
            raise _Refused(HTTPStatus.FORBIDDEN, "this server answers at the loopback alone. Open the link as printed.")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            raise _Refused(HTTPStatus.FORBIDDEN, "another site asked.")
        first, _, rest = address.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(first.encode(), self.server.secret.encode()):
            raise _Refused(HTTPStatus.NOT_FOUND, "nothing is here. Open the link that grpo watch printed.")
        return rest, parse_qs(address.query, keep_blank_values=True)

    def _get(self, asked: str, query: dict[str, list[str]]) -> None:
        folder, names = self.server.folder, list(dict.fromkeys(query.get("run", ())))
        if asked == "":
            self._html(list_page())
        elif asked == "runs.json":
            self._json({"runs": folder.lines(), "edit": self.server.edit})
        elif asked == "report" and names:
            state = folder.watched(names).state()
            self._html(live_page(state.summary, state.version))
        elif asked == "data.json" and names:
            state = folder.watched(names).state()
            if [state.version] == query.get("version"):
                self._send(HTTPStatus.NO_CONTENT, "application/json", b"")
                return
            self._json({"version": state.version, "summary": state.summary, "waiting": state.waiting})
        elif asked == "block" and names:
            name, version = ("".join(query.get(key, ())) for key in ("name", "version"))
            block = folder.watched(names).block(name, version)
            if block is None:
                raise _Refused(HTTPStatus.GONE, "the runs went on, and this block with them. Reload the page.")
            self._send(HTTPStatus.OK, "text/plain; charset=utf-8", block.encode())
        else:
            raise _Refused(HTTPStatus.NOT_FOUND, "nothing is here. Open the link that grpo watch printed.")

    def _post(self, asked: str, query: dict[str, list[str]]) -> None:
        if not self.server.edit:
            raise _Refused(HTTPStatus.FORBIDDEN, "this page is to be read only. To change runs: grpo watch --edit")
        if self.headers.get("Origin") is None or self.headers.get_content_type() != "application/json":
            raise _Refused(HTTPStatus.FORBIDDEN, "changes come from the page alone.")
        value = self._sent()
        if asked == "label":
            labels = {key: own for key, own in value.items() if key != "run"}
            self.server.folder.label(str(value.get("run")), labels)
        elif asked == "delete":
            self.server.folder.delete(str(value.get("run")), str(value.get("confirmed")))
        else:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such change.")
        self._json({})

    def _sent(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= LONGEST):
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a change has at most {LONGEST} bytes.")
        try:
            value = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise _Refused(HTTPStatus.BAD_REQUEST, "a change is a JSON object.")
        return value

    def _html(self, pieces: Iterable[str]) -> None:
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", "".join(pieces).encode())

    def _error(self, text: str, status: HTTPStatus) -> None:
        """Says what is wrong: as text to a person who opened an address, and as JSON to the scripts of a page."""
        if "text/html" in self.headers.get("Accept", ""):
            self._send(status, "text/plain; charset=utf-8", f"{text}\n".encode())
        else:
            self._json({"error": text}, status)

    def _json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, "application/json", json.dumps(value, default=str).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
