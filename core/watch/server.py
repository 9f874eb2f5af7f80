"""Serves pages of runs to the browser of this machine's user: `grpo watch` runs it.

How it works. It listens on the loopback alone. Every address begins with a secret that only the link has, so other
users and programs of the machine find nothing. A page of another site cannot read a link; if it learned one, its
request names another host (a domain bound to the loopback) or origin and is refused. Changes need all of this, a POST
with JSON, and a server that was started to allow them. What it serves is never framed, cached or sent on as a referrer.
"""

from __future__ import annotations

import json
import secrets
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from grpo.core.http.guard import routed, same_secret
from grpo.core.http.limits import Callers, Limits
from grpo.core.http.serving import HttpServer, bound
from grpo.core.report.page import list_page, live_page
from grpo.core.watch.folder import WatchedFolder
from grpo.plugins.errors import RunError, UsageError

LOOPBACK = "127.0.0.1"
LONGEST = 100_000  # bytes of a change
NOTHING = "nothing is here. Open the link that grpo watch printed."
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class WatchServer(HttpServer):
    """Serves the runs of a folder; with `edit`, readers may change them. Raises RunError: the port (0: any) is used."""

    def __init__(self, folder: WatchedFolder, port: int, *, edit: bool = False) -> None:
        self.folder = folder
        self.edit = edit
        self.secret = secrets.token_urlsafe(24)
        try:
            listener = bound(LOOPBACK, port)
        except OSError as error:
            raise RunError(
                f"cannot listen on port {port}: {error.strerror}. Choose another with --port; 0 takes any free one."
            ) from None
        routes = [
            Route("/{secret}", self._complete),
            Route("/{secret}/{page:path}", self._show),
            Route("/{secret}/{change}", self._change, methods=["POST"]),
            Route("/{path:path}", self._refuse, methods=["GET", "POST"]),
        ]
        app = routed(routes, {UsageError: 409})
        super().__init__(app, listener, Callers(own_pages=True), Limits(body_bytes=LONGEST), HEADERS)

    @property
    def link(self) -> str:
        """The address to open; it grants all that this server does."""
        start = f"http://{LOOPBACK}:{self.port}/{self.secret}/"
        return start if self.folder.alone is None else f"{start}report?run={quote(self.folder.alone, safe='')}"

    def _admit(self, request: Request) -> None:
        if not same_secret(request.path_params["secret"], self.secret):
            raise HTTPException(404, NOTHING)

    def _refuse(self, request: Request) -> Response:
        raise HTTPException(404, NOTHING)

    def _complete(self, request: Request) -> Response:
        """Answers a link whose last slash was lost."""
        self._admit(request)
        return RedirectResponse(f"/{self.secret}/")

    def _show(self, request: Request) -> Response:
        self._admit(request)
        page, query, folder = request.path_params["page"], request.query_params, self.folder
        names = list(dict.fromkeys(query.getlist("run")))
        if page == "":
            return HTMLResponse("".join(list_page()))
        if page == "runs.json":
            return _json({"runs": folder.lines(), "edit": self.edit})
        if page == "report" and names:
            state = folder.watched(names).state()
            return HTMLResponse("".join(live_page(state.summary, state.version)))
        if page == "data.json" and names:
            state = folder.watched(names).state()
            if state.version == query.get("version"):
                return Response(status_code=204)
            return _json({"version": state.version, "summary": state.summary, "waiting": state.waiting})
        if page == "block" and names:
            block = folder.watched(names).block(query.get("name", ""), query.get("version", ""))
            if block is None:
                raise HTTPException(410, "the runs went on, and this block with them. Reload the page.")
            return PlainTextResponse(block)
        raise HTTPException(404, NOTHING)

    async def _change(self, request: Request) -> Response:
        self._admit(request)
        if not self.edit:
            raise HTTPException(403, "this page is to be read only. To change runs: grpo watch --edit")
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if "origin" not in request.headers or kind != "application/json":
            raise HTTPException(403, "changes come from the page alone.")
        try:
            value = json.loads(await request.body())
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise HTTPException(400, "a change is a JSON object.")
        run, change = str(value.get("run")), request.path_params["change"]
        if change == "label":
            labels = {key: text for key, text in value.items() if key != "run"}
            await run_in_threadpool(self.folder.label, run, labels)
        elif change == "delete":
            await run_in_threadpool(self.folder.delete, run, str(value.get("confirmed")))
        else:
            raise HTTPException(404, "there is no such change.")
        return _json({})


def _json(value: Any) -> Response:
    return Response(json.dumps(value, default=str), media_type="application/json")
