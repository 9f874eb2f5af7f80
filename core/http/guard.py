"""Refuses callers and request bodies before they reach an application, and limits the size of bodies.

Errors are JSON, {"error": what happened, why, what to do next}, or plain text for a browser. An application refuses by
raising starlette's `HTTPException(status, text)`. The rest of a refused body is read and forgotten for a moment, so
that the caller sees the answer and no broken connection.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grpo.core.http.limits import Callers, Limits, is_loopback_address
from grpo.core.text.printable import encodable, one_line

LINGER_BYTES = 2**20  # of the rest of a body that are read and forgotten, at most

_log = logging.getLogger("grpo.http")


def routed(routes: Sequence[BaseRoute], statuses: Mapping[type[Exception], int] | None = None) -> Starlette:
    """Returns an application whose errors are answered by `error_response`; `statuses`: of exceptions of its own."""

    async def answer(request: Request, error: Exception) -> Response:
        return _answer_to(request.scope, error)

    async def answer_own(request: Request, error: Exception) -> Response:
        status = next(status for kind, status in (statuses or {}).items() if isinstance(error, kind))
        return error_response(request.headers, status, str(error))

    handlers = {HTTPException: answer, Exception: answer, **dict.fromkeys(statuses or {}, answer_own)}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


def error_response(headers: Headers, status: int, text: str, more: Mapping[str, str] | None = None) -> Response:
    """Returns the answer that says what is wrong: text to a person, JSON to a program."""
    text = encodable(text)
    if "text/html" in headers.get("accept", ""):
        return PlainTextResponse(f"{text}\n", status, more)
    return JSONResponse({"error": text}, status, more)


def bearer_of(headers: Headers) -> str:
    """Returns the token that a request names as `Authorization: Bearer TOKEN`, or ""."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def same_secret(given: str, secret: str) -> bool:
    """Compares in a time that does not depend on where the first difference is."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode("utf-8", "replace"))


class Guard:
    """An ASGI application that passes permitted requests to another one."""

    def __init__(self, app: ASGIApp, callers: Callers, limits: Limits) -> None:
        self._app = app
        self._callers = callers
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, receive, send, self._limits)
        try:
            self._refuse_stranger(scope)
            exchange.refuse_size(exchange.declared)
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:
            if not exchange.started:
                await _answer_to(scope, error)(scope, exchange.receive, exchange.send)
            elif not exchange.ended:
                if not exchange.disconnected:
                    _log.error("an answer broke off: %s", type(error).__name__, exc_info=error)
                raise

    def _refuse_stranger(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(k) + len(v) for k, v in scope["headers"])
        if len(headers) > self._limits.head_fields or size > self._limits.head_bytes:
            limit = f"{self._limits.head_fields} headers and {self._limits.head_bytes} bytes"
            raise HTTPException(431, f"the request has too many headers: send at most {limit}")
        hosts = headers.getlist("host")
        if self._callers.hosts is not None and not (len(hosts) == 1 and self._is_own_name(hosts[0])):
            raise HTTPException(
                403, "the request names another host than this server: call it by 127.0.0.1, localhost or its own name"
            )
        own = [f"http://{host}" for host in hosts] if self._callers.own_pages else []
        if any(origin not in own for origin in headers.getlist("origin")):
            raise HTTPException(403, "web pages of other sites are not answered: call from a program")
        if self._callers.token is not None and not same_secret(bearer_of(headers), self._callers.token):
            raise HTTPException(
                401,
                "the token is missing or wrong: send it as Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )

    def _is_own_name(self, host: str) -> bool:
        try:
            place = urlsplit(f"//{host}")
            name = place.hostname
        except ValueError:
            return False
        if name is None or "@" in place.netloc:
            return False
        return name == "localhost" or is_loopback_address(name) or name in (self._callers.hosts or ())


class _Exchange:
    """A request and its answer, of whose body no more is read than the limits allow."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        headers = Headers(scope=scope)
        self.declared = 0 if "transfer-encoding" in headers else int(headers.get("content-length", "0"))
        self._arrived = "transfer-encoding" not in headers and self.declared == 0  # all of the body
        self._received = 0
        self._waited = 0.0
        self._largest = limits.body_bytes_of.get(scope["path"], limits.body_bytes)
        self._limits = limits
        self._receive, self._send = receive, send
        self.started = self.ended = self.disconnected = False

    def refuse_size(self, size: int) -> None:
        if self._largest is not None and size > self._largest:
            raise HTTPException(413, f"the body is too large: send at most {self._largest} bytes")

    async def receive(self) -> Message:
        """Returns the next part of the body; HTTPException 408 where it comes too slowly, 413 where it is too much."""
        if self._arrived:
            return await self._receive()
        patience = self._limits.silence
        if self._largest is not None:
            patience = min(patience, patience + self._received / self._limits.least_rate - self._waited)
        since = time.monotonic()
        try:
            async with asyncio.timeout(patience):
                message = await self._take()
        except TimeoutError:
            raise HTTPException(408, "the body arrives too slowly: send it again on a faster connection") from None
        self._waited += time.monotonic() - since
        self.refuse_size(self._received)
        return message

    async def _take(self) -> Message:
        message = await self._receive()
        self.disconnected = message["type"] == "http.disconnect"
        self._received += len(message.get("body", b""))
        self._arrived = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Answers, and keeps no connection that still brings a body."""
        if message["type"] == "http.response.start":
            self.started = True
            if not self._arrived:
                message = {**message, "headers": [*message.get("headers", []), (b"connection", b"close")]}
        elif not message.get("more_body", False):
            if not self._arrived:
                await self._send({**message, "more_body": True})
                await self._forget_rest()
                message = {"type": "http.response.body", "body": b""}
            self.ended = True
        await self._send(message)

    async def _forget_rest(self) -> None:
        enough = self._received + LINGER_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.linger):
                while not self._arrived and self._received < enough:
                    await self._take()


def _answer_to(scope: Scope, error: Exception) -> Response:
    headers = Headers(scope=scope)
    if not isinstance(error, HTTPException):
        reason = one_line(f"{type(error).__name__}: {error}", 300)
        return error_response(headers, 500, f"this could not be answered: {reason}")
    text = error.detail
    if text == HTTPStatus(error.status_code).phrase:  # of starlette's own: no such route, or another method
        text = f"there is no {scope['method']} {one_line(scope['path'], 100)} here: look up what this server answers"
    return error_response(headers, error.status_code, text, error.headers)
