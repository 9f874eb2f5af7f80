"""Adds to uvicorn's HTTP/1.1 protocol the limits that it lacks: slow heads, callers that do not read, connections.

A connection is cut when its request line and headers are late, counted from its first byte (or its opening), and when
none of an answer was taken for a while. One connection too many costs the one that has waited longest for a request its
place, or is closed itself where all are busy. (uvicorn's own limit answers 503 to everybody.)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import h11
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from grpo.core.http.limits import Limits


class LimitedConfig(Config):
    """uvicorn's settings, with the limits of this server and without its logs, signals and trust in proxies."""

    def __init__(self, app: ASGIApp, limits: Limits, headers: Mapping[str, str]) -> None:
        super().__init__(
            app,
            loop="asyncio",
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=list(headers.items()),
            h11_max_incomplete_event_size=limits.head_bytes,
            timeout_keep_alive=limits.idle,
            timeout_graceful_shutdown=limits.stop,
        )
        self.limits = limits


class LimitedProtocol(H11Protocol):
    """One connection of a server with a `LimitedConfig`."""

    def __init__(self, config: LimitedConfig, *args: Any, **named: Any) -> None:
        super().__init__(config, *args, **named)
        self._limits = config.limits
        self._waits_since = 0.0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts waiting for a request, and closes a connection where too many are open."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that `pause_writing` tells of every byte that was not taken
        self._waits_since = self.loop.time()
        self._time_head()
        if len(self.connections) > self._limits.connections:
            idle = [own for own in self.connections if isinstance(own, LimitedProtocol) and own._waits_for_head]
            min(idle, key=lambda own: own._waits_since).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Reads on, and times the head of a request that is not complete."""
        super().data_received(data)
        self._time_head()

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    @property
    def _waits_for_head(self) -> bool:
        return self.conn.their_state is h11.IDLE and not self.transport.is_closing()

    def _time_head(self) -> None:
        if self._waits_for_head and self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_seconds, self.transport.abort)
        elif not self._waits_for_head and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def pause_writing(self) -> None:
        """Begins to watch whether the caller takes its answer."""
        super().pause_writing()
        self._watch_stall(self.transport.get_write_buffer_size())

    def _watch_stall(self, before: int) -> None:
        self._stall_timer = self.loop.call_later(self._limits.silence, self._cut_stalled, before)

    def _cut_stalled(self, before: int) -> None:
        now = self.transport.get_write_buffer_size()
        if now >= before:
            self.transport.abort()
        else:
            self._watch_stall(now)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answers a request that cannot be parsed, in JSON as every error, and hangs up."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        text = (
            f"this is no HTTP request within the limits: send a request line and headers of {self._limits.head_bytes} "
            "bytes at most, one Host, and a body of the length that is declared"
        )
        body = json.dumps({"error": text}).encode()
        length = (b"content-length", str(len(body)).encode())
        headers = [(b"content-type", b"application/json"), length, (b"connection", b"close")]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
