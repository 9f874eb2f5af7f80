"""Keeps unused servers ready; an episode that begins is expected to need one. State changes on the event loop only."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from grpo.plugins.errors import TransientError
from grpo.plugins.mcp.connection import Connection, on_loop
from grpo.plugins.mcp.servers import McpServer

KEPT = 8
"""How many servers are kept ready between episodes, at most."""
_MOST = 64  # that are started ahead
_AT_ONCE = max(2, os.cpu_count() or 1)  # that start at the same time
_CLOSING = 10.0

_lock = threading.Lock()
_pools: dict[McpServer, ServerPool] = {}


class ServerPool:
    """The servers of one entry of `mcp`, in this process."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._spares: deque[Connection] = deque()
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self._starting: set[Connection] = set()
        self._expected = 0  # episodes that have begun and have no server yet
        self._open = 0  # episodes that have begun
        self._peak = 0  # the most that were open at once, when one took a server
        self._failed = False  # the last start; no spare is started until one is asked for
        self._listed: tuple[Any, ...] | None = None

    def tools(self) -> tuple[Any, ...]:
        """Returns the tools that the server lists, from any thread. Raises TransientError."""
        if self._listed is None:
            self._listed = on_loop(self._list()).result()
        return self._listed

    def begin(self) -> None:
        """Notes that an episode has begun, from any thread."""
        on_loop(self._begin())

    def take(self, *, first: bool = True) -> Connection:
        """Returns an unused server, from any thread; `first`: of the episode. Raises TransientError."""
        connection: Connection = on_loop(self._take(expected=first)).result()
        return connection

    def end(self, *, asked: bool) -> None:
        """Notes that an episode is over, and whether it asked for a server, from any thread."""
        on_loop(self._end(asked))

    def close(self) -> None:
        """Ends the servers that wait for an episode, and waits until they are dead."""
        with suppress(TimeoutError):
            on_loop(self._close()).result(_CLOSING)

    async def _list(self) -> tuple[Any, ...]:
        connection = await self._take(expected=False)
        self._spares.append(connection)
        return connection.tools

    async def _begin(self) -> None:
        self._open += 1
        self._expected += 1
        self._fill()

    async def _take(self, *, expected: bool) -> Connection:
        self._failed = False
        if expected:
            self._expected -= 1
            self._peak = max(self._peak, self._open)
        while self._spares:
            connection = self._spares.popleft()
            if not connection.lost:
                self._fill()
                return connection
            connection.close()
        waiter: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._fill()
        return await waiter

    async def _end(self, asked: bool) -> None:
        self._open -= 1
        self._expected -= not asked
        self._trim()

    def _trim(self) -> None:
        while len(self._spares) > max(self._expected, KEPT):
            self._spares.pop().close()

    def _fill(self) -> None:
        ahead = 0 if self._failed else min(_MOST, max(self._expected, min(KEPT, self._peak)))
        while len(self._starting) < _AT_ONCE and len(self._spares) + len(self._starting) < len(self._waiting) + ahead:
            connection = Connection(self.server)
            self._starting.add(connection)
            task = asyncio.create_task(self._start(connection))
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)

    async def _start(self, connection: Connection) -> None:
        try:
            await connection.ready()
        except TransientError as error:
            self._failed = True
            if self._waiting:
                self._waiting.popleft().set_exception(error)
        else:
            if self._waiting:
                self._waiting.popleft().set_result(connection)
            else:
                self._spares.append(connection)
                self._trim()
        finally:
            self._starting.discard(connection)
            self._fill()

    async def _close(self) -> None:
        self._expected = self._peak = 0
        ends = [asyncio.wrap_future(each.close()) for each in (*self._spares, *self._starting)]
        self._spares.clear()
        await asyncio.gather(*ends, return_exceptions=True)


_tasks: set[asyncio.Task[None]] = set()


def pool_of(server: McpServer) -> ServerPool:
    """Returns the pool of a server, the same for all environments of this process."""
    with _lock:
        if server not in _pools:
            _pools[server] = ServerPool(server)
        return _pools[server]


@atexit.register
def close_pools() -> None:
    """Ends all servers that wait for an episode."""
    with _lock:
        pools = list(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()
