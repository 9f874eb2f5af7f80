"""Serves the APIs of chat programs over HTTP; a desk (core/rollout/agents/desk.py) answers the requests.

A key opens only its own episode. A stream is kept open by comments, any other answer by its connection. A program that
goes away cancels its request; an answer counts as delivered when all of it was written to an open connection. Clients
repeat what ends with a status of 429, or of 500 and above, so no request is refused with one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from grpo.core.gateway.connection import Connection, Gone
from grpo.core.gateway.conversation import Ask, Desk, Dialect, Refused
from grpo.core.gateway.dialects import chat, messages, responses
from grpo.core.gateway.dialects.fields import Body, body_of, malformed
from grpo.core.http.guard import bearer_of
from grpo.core.http.limits import Callers, Limits
from grpo.core.http.serving import HttpServer, bound
from grpo.core.text.printable import one_line

MOST_OPEN, MOST_READ = 64, 2  # requests of one key at a time, and of these with their bodies in memory
LARGE = 1 << 20  # bytes of a body; one larger body is parsed at a time, since that takes seconds and much memory
BREATH = 0.05  # seconds before that in which others are answered
PAUSE = 5.0  # seconds between two comments in a stream
DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
}
COUNT = "/v1/messages/count_tokens"
MODELS = "/v1/models"
PATHS = ("HEAD /", *(f"POST {path}" for path in (*DIALECTS, COUNT)), f"GET {MODELS}", f"GET {MODELS}/MODEL")
WITH_KEY = "/r/{key}"
LIMITS = Limits(
    connections=4096,  # of all episodes; each may have 64 requests open
    body_bytes=None,  # the gateway holds bodies to its own limit, and refuses a larger one as its API does
    idle=600,  # longer than tools run, so that no client sends on a connection that is being closed
    stop=1,
)

log = logging.getLogger(__name__)


def gateway_app(desk: Desk, pause: float = PAUSE) -> Starlette:
    """Returns the app of a gateway, in whose event loop the desk is called; `pause`: seconds between two comments."""
    requests = _OpenRequests()

    async def root(request: Request) -> JSONResponse:
        if request.path_params:
            _admitted(desk, request.scope)
        return JSONResponse({"paths": PATHS})

    async def models(request: Request) -> JSONResponse:
        _admitted(desk, request.scope)
        name = request.path_params.get("model", desk.model)
        if name != desk.model:
            raise Refused(404, f"There is no model {one_line(repr(name))}. Ask for '{desk.model}'.", "model_not_found")
        model = _model(desk.model)
        if "model" in request.path_params:
            return JSONResponse(model)
        return JSONResponse(
            {"object": "list", "data": [model], "has_more": False, "first_id": desk.model, "last_id": desk.model}
        )

    points = {path: _Point(desk, dialect, requests, pause) for path, dialect in DIALECTS.items()}
    points[COUNT] = _Point(desk, messages, requests, pause, counts=True)
    routes: list[BaseRoute] = [Route(WITH_KEY, root)]
    for prefix in ("", WITH_KEY):
        routes += [Route(prefix + path, point, methods=["POST"]) for path, point in points.items()]
        routes += [Route(f"{prefix}/", root), Route(prefix + MODELS, models)]
        routes.append(Route(f"{prefix}{MODELS}/{{model:path}}", models))

    async def refusal(request: Request, refused: Exception) -> JSONResponse:
        assert isinstance(refused, Refused)
        if key := _known_key(desk, request.scope):
            desk.note(key, refused)
        return _error(messages if "anthropic-version" in request.headers else chat, refused)

    async def no_route(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        problem = f"{request.method} {one_line(request.url.path)} is not served here"
        paths = f"There are {', '.join(PATHS)}, and the same below /r/KEY."
        return await refusal(request, Refused(error.status_code, f"{problem}. {paths}", "not_found"))

    app = Starlette(routes=routes, exception_handlers={Refused: refusal, HTTPException: no_route})
    app.router.redirect_slashes = False
    return app


def _known_key(desk: Desk, scope: Scope) -> str:
    """Returns the key of a request: the one in its path, else one in its headers; "" if the desk knows none."""
    headers = Headers(scope=scope)
    in_headers = [bearer_of(headers), headers.get("x-api-key", "")]
    in_path = scope.get("path_params", {}).get("key")
    return next((key for key in (in_headers if in_path is None else [in_path]) if key and desk.known(key)), "")


def _admitted(desk: Desk, scope: Scope) -> str:
    if key := _known_key(desk, scope):
        return key
    raise Refused(
        401,
        "No episode has this key. Send the key that the agent was given as 'Authorization: Bearer KEY', as "
        "'x-api-key: KEY', or in the path, as /r/KEY/v1/...",
        "invalid_api_key",
    )


def _model(name: str) -> Body:
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "grpo",
        "type": "model",
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
    }


@dataclass(slots=True)
class _OpenRequests:
    counts: Counter[str] = field(default_factory=Counter)
    # held by a request of a key while its body is in memory
    reading: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    large: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while a large body is parsed, whoever sent it

    @contextmanager
    def one_more(self, key: str) -> Iterator[asyncio.Semaphore]:
        """Counts a request while it is open; yields what to hold while its body is in memory. Raises Refused."""
        if self.counts[key] >= MOST_OPEN:
            raise Refused(400, f"{MOST_OPEN} requests of this key are open. Wait for the answer to one of them.")
        self.counts[key] += 1
        try:
            yield self.reading.setdefault(key, asyncio.Semaphore(MOST_READ))
        finally:
            self.counts[key] -= 1
            if not self.counts[key]:
                del self.counts[key], self.reading[key]


@dataclass(frozen=True, slots=True)
class _Point:
    desk: Desk
    dialect: Dialect
    requests: _OpenRequests
    pause: float
    counts: bool = False  # it answers with the number of tokens of a prompt, else with what the policy samples

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = Connection(scope, receive, send)
        try:
            key = _admitted(self.desk, scope)
            with self.requests.one_more(key) as reading:
                async with reading:
                    ask = await self._ask(connection)
                await self._answer(key, ask, connection)
            await connection.end()
        except Gone:
            pass
        except Refused as refused:
            await self._refuse(refused, connection)
        except RecursionError:
            nested = malformed("The request is nested too deeply", "Send flatter tools and arguments")
            await self._refuse(nested, connection)
        except Exception:
            log.exception("a request to %s broke", scope["path"])
            broken = Refused(500, "The gateway broke, which is no fault of the request. See the log of the run.")
            await self._refuse(broken, connection)
        finally:
            connection.close()

    async def _ask(self, connection: Connection) -> Ask:
        """Reads a request; nothing of it is kept but the question."""
        data = await connection.body()
        if len(data) <= LARGE:
            return self.dialect.read(body_of(data), connection.headers)
        async with self.requests.large:
            await asyncio.sleep(BREATH)
            return self.dialect.read(body_of(data), connection.headers)

    async def _answer(self, key: str, ask: Ask, connection: Connection) -> None:
        if self.counts:
            await connection.deliver(messages.counted(self.desk.count(key, ask)))
            return
        answered = await connection.held(self.desk.ask(key, ask), self.pause if ask.stream else None)
        replies = answered.replies
        await connection.deliver(self.dialect.events(ask, replies) if ask.stream else self.dialect.whole(ask, replies))
        answered.delivered()

    async def _refuse(self, refused: Refused, connection: Connection) -> None:
        if key := _known_key(self.desk, connection.scope):
            self.desk.note(key, refused)
        if not connection.streaming:
            await connection.respond(_error(self.dialect, refused))
            return
        with suppress(Gone):
            await connection.deliver(self.dialect.error_events(refused))
            await connection.end()


def _error(dialect: Dialect, refused: Refused) -> JSONResponse:
    return JSONResponse(dialect.error(refused), refused.status, {"x-should-retry": "false"})


def gateway_server(desk: Desk, listener: socket.socket | None = None, pause: float = PAUSE) -> HttpServer:
    """Returns the server of a gateway, not yet started; on `listener`, or on a free port of 127.0.0.1."""
    # A key is a secret that no web page knows, so any name of this machine will do: sessions have their own.
    return HttpServer(gateway_app(desk, pause), listener or bound("127.0.0.1", 0), Callers(hosts=None), LIMITS)
