"""Copies bytes between the ports of sessions and addresses of this machine, in one thread for all."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from grpo.rewards.session.relay import Streams, join

_LOG = logging.getLogger("grpo.sessions")
_MOST = 32  # connections of one port at once; further callers wait, for this process has few descriptors
_PAUSE = 0.1  # seconds after a caller that could not be taken


class Port:
    """A port that is listened on, and its connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        self._loop, self._listener = loop, listener
        self._tasks: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(_MOST)
        self._untaken = set[socket.socket]()  # callers whose task has not begun, and may be cancelled before it does

    async def listen(self, connect: Callable[[], Awaitable[Streams]]) -> None:
        """Connects whoever comes with what `connect` opens, until it is cancelled."""
        self._listener.setblocking(False)
        while True:
            await self._free.acquire()
            try:
                caller, _ = await self._loop.sock_accept(self._listener)
            except OSError:  # the caller has gone again, or this process has no descriptor left
                self._free.release()
                await asyncio.sleep(_PAUSE)
                continue
            self._untaken.add(caller)
            self.add(self._meet(caller, connect)).add_done_callback(partial(self._leave, caller))

    def add(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """Listens no more and ends the connections; safe to call twice."""
        if not self._loop.is_closed():  # with the proxy, which closed every port
            asyncio.run_coroutine_threadsafe(self.end(), self._loop).result()

    async def end(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    def _leave(self, caller: socket.socket, _: asyncio.Task[None]) -> None:
        if caller in self._untaken:
            self._untaken.discard(caller)
            caller.close()
        self._free.release()

    async def _meet(self, caller: socket.socket, connect: Callable[[], Awaitable[Streams]]) -> None:
        self._untaken.discard(caller)
        try:
            reader, writer = await asyncio.open_connection(sock=caller)
        except BaseException:
            caller.close()
            raise
        try:
            await join(reader, writer, connect)
        except Exception as error:  # nobody answers there: the caller sees a closed connection
            _LOG.debug("a port is not reached: %s", error)


class Proxy:
    """Listens and connects; its thread starts with the first port."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ports: weakref.WeakSet[Port] = weakref.WeakSet()

    def serve(self, listener: socket.socket, address: str) -> Port:
        """Connects whoever comes to a listening socket with an address, "HOST:PORT"."""
        host, _, port = address.rpartition(":")
        return self._begin(listener, lambda: asyncio.open_connection(host, int(port)))

    def offer(self, connect: Callable[[], socket.socket]) -> tuple[Port, str]:
        """Returns a port and its address, whose callers are connected with what a function returns."""
        listener = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        async def opened() -> Streams:
            return await asyncio.open_connection(sock=await asyncio.to_thread(connect))

        return self._begin(listener, opened), address

    def close(self) -> None:
        """Closes every port and connection; safe to call twice."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    async def _end(self) -> None:
        await asyncio.gather(*(port.end() for port in [*self._ports]))
        await asyncio.get_running_loop().shutdown_default_executor()

    def _begin(self, listener: socket.socket, connect: Callable[[], Awaitable[Streams]]) -> Port:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="grpo-ports", daemon=True)
                self._thread.start()
            loop = self._loop
            port = Port(loop, listener)
            self._ports.add(port)
        loop.call_soon_threadsafe(lambda: port.add(port.listen(connect)))
        return port

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()
