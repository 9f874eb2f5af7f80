"""Runs an ASGI application on uvicorn in a thread of its own, behind limits, checks of callers and a clean stop.

    app = routed([Route("/state", state), Route("/calls", call, methods=["POST"])])
    with HttpServer(app, bound("127.0.0.1", 0), Callers(token=secret), Limits(body_bytes=2**20)) as server:
        print(server.port)

`async def` handlers run on the server's event loop, `def` handlers in a pool of threads. Importing this module loads
starlette and uvicorn, so it is imported where a server starts and nowhere else.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from grpo.core.http.guard import Guard
from grpo.core.http.limits import Callers, Limits
from grpo.core.http.protocol import LimitedConfig

CALLERS, LIMITS, NO_HEADERS = Callers(), Limits(), dict[str, str]()


def bound(host: str, port: int) -> socket.socket:
    """Returns a socket with an address, on which a server may listen. Raises OSError if it is taken, or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sends at once where it is named
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


class HttpServer:
    """Serves an application. `listener`: a bound socket, which this object closes in the end."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        callers: Callers = CALLERS,
        limits: Limits = LIMITS,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        self._listener = listener
        self._address = listener.getsockname()
        self._server = _Server(LimitedConfig(Guard(app, callers, limits), limits, headers))
        self._thread = threading.Thread(target=self._run, name="http server", daemon=True)
        self._error: BaseException | None = None

    @property
    def port(self) -> int:
        return int(self._address[1])

    def start(self) -> None:
        """Returns once requests are answered. Raises OSError if another process began to listen on the address."""
        self._thread.start()
        self._server.ready.wait()
        if self._error is not None:
            self.stop()
            raise self._error

    def wait(self) -> None:
        """Waits until the server ends, by a `stop` in another thread or an error."""
        self._thread.join()

    def stop(self) -> None:
        """Ends the server; without effect where it has not begun, or has ended."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._listener]))
        except BaseException as error:
            self._error = error
        finally:
            self._server.ready.set()


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it answers and leaves no connection behind."""

    def __init__(self, config: LimitedConfig) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
