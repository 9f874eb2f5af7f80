"""Holds the connection of a request until its answer is ready, and notices when the client goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from grpo.core.gateway.conversation import Refused

MOST_BYTES = 16 << 20  # of a request's body
MOST_DISCARDED = 4 * MOST_BYTES  # of a larger one, so that its sender comes to read the refusal
LOOP_PASSES = 4  # of the event loop, after which it has seen a connection that is closed by now
COMMENT = b": waiting\n\n"
JSON, EVENTS = "application/json", "text/event-stream"

Result = TypeVar("Result")


class Gone(Exception):
    """The client has closed its connection."""


class Connection:
    """One request and its response. `streaming`: whether the response has begun as a stream of events."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.headers = Headers(scope=scope)
        self.streaming = False
        self._receive = receive
        self._send = send
        self._watch: asyncio.Task[None] | None = None

    async def body(self) -> bytes:
        """Reads the body of the request; from then on a client that goes away is noticed. Raises Refused, Gone."""
        length = self.headers.get("content-length", "")
        announced = int(length) if length.isdecimal() else 0
        size, more, parts = 0, announced <= MOST_DISCARDED, []
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            size += len(message.get("body", b""))
            more = bool(message.get("more_body")) and size <= MOST_DISCARDED
            if max(size, announced) <= MOST_BYTES:
                parts.append(message.get("body", b""))
            else:
                parts.clear()
        if max(size, announced) > MOST_BYTES:
            raise Refused(
                413,
                f"The body has more than {MOST_BYTES >> 20} MiB. Send a shorter conversation.",
                "request_too_large",
            )
        if (encoding := self.headers.get("content-encoding", "identity")) != "identity":
            raise Refused(400, f"The body is compressed ({encoding!r}). Send it without 'Content-Encoding'.")
        self._watch = asyncio.create_task(self._until_gone())
        return b"".join(parts)

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def close(self) -> None:
        """Ends the watch for a client that goes away."""
        if self._watch is not None:
            self._watch.cancel()

    async def held(self, work: Coroutine[Any, Any, Result], pause: float | None) -> Result:
        """Waits for work, and cancels it when the client goes away, which raises Gone.

        `pause`: seconds before the response becomes a stream, and between two comments in it; None: no stream.
        """
        assert self._watch is not None
        task = asyncio.create_task(work)
        try:
            while not task.done():
                await asyncio.wait({task, self._watch}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if self._watch.done():
                    raise Gone
                if not task.done():
                    await self._part(COMMENT)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def deliver(self, body: Mapping[str, Any] | bytes) -> None:
        """Sends JSON, or the bytes of events, before the `end`. Raises Gone if the client went away."""
        assert self._watch is not None
        for _ in range(LOOP_PASSES):
            await asyncio.sleep(0)
        if not self._watch.done():
            await (self._part(body) if isinstance(body, bytes) else self._whole(body))
            await self._body(b"")  # waits until the system has taken what came before
        if self._watch.done():
            raise Gone

    async def respond(self, response: Response) -> None:
        await response(self.scope, self._receive, self._send)

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _part(self, events: bytes) -> None:
        if not self.streaming:
            self.streaming = True
            headers = {"content-type": f"{EVENTS}; charset=utf-8", "cache-control": "no-cache"}
            await self._start(headers)
        await self._body(events)

    async def _whole(self, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        await self._start({"content-type": JSON, "content-length": str(len(data))})
        await self._body(data)

    async def _body(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _start(self, headers: Mapping[str, str]) -> None:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})
