"""Copies bytes between the ports of sessions and addresses of this machine, in one thread for all."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable

from grpo.rewards.session.relay import Streams, join

_LOG = logging.getLogger("grpo.sessions")
Close = Callable[[], None]


class Proxy:
    """Listens and connects; its thread starts with the first port."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._servers: set[asyncio.Server] = set()

    def serve(self, listener: socket.socket, address: str) -> Close:
        """Connects whoever comes to a listening socket with an address, "HOST:PORT"; returns what ends that."""
        host, _, port = address.rpartition(":")
        return self._begin(listener, lambda: asyncio.open_connection(host, int(port)))

    def offer(self, connect: Callable[[], socket.socket]) -> tuple[str, Close]:
        """Returns an address whose callers are connected with what a function returns, and what ends that."""
        listener = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        async def opened() -> Streams:
            return await asyncio.open_connection(sock=await asyncio.to_thread(connect))

        return address, self._begin(listener, opened)

    def close(self) -> None:
        """Closes every port and connection; safe to call twice."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    async def _end(self) -> None:
        """Closes the listening sockets and ends every connection."""
        for server in self._servers:
            server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # a caller may have come meanwhile
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()

    def _begin(self, listener: socket.socket, connect: Callable[[], Awaitable[Streams]]) -> Close:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="grpo-ports", daemon=True)
                self._thread.start()
            loop = self._loop

        async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await join(reader, writer, connect)
            except Exception as error:  # nobody answers there: the caller sees a closed connection
                _LOG.debug("a port is not reached: %s", error)

        async def end() -> None:
            self._servers.discard(server)
            server.close()

        def close() -> None:
            with self._lock:
                if self._loop is loop:  # else it is closed already
                    asyncio.run_coroutine_threadsafe(end(), loop).result()

        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(meet, sock=listener), loop).result()
        self._servers.add(server)
        return close

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()
