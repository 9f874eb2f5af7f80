"""Holds the connection to one MCP server, in an event loop that all connections of this process share.

A lost server (it does not start, ends, hangs or breaks the protocol) is a `TransientError`: the episode is a failure.
All else is a text for the policy: a result, an error of the tool, a timeout while the server still answers.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from grpo.plugins.errors import TransientError
from grpo.plugins.mcp.messages import message_streams
from grpo.plugins.mcp.process import ServerProcess, start_server
from grpo.plugins.mcp.servers import ALIVE, STARTING, McpServer
from grpo.plugins.mcp.session_server import SessionServer, start_in_session

_ENDING = 5.0
_MOST_PAGES = 100  # of a list of tools
_LONGEST = 300  # characters of a reason
_CUT = "\n[...]\n"
_UNSEEN = "[{what} that cannot be shown here]"

_Process = ServerProcess | SessionServer
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_ending: set[asyncio.Task[None]] = set()


def on_loop(work: Coroutine[Any, Any, Any]) -> Future[Any]:
    """Runs a coroutine on the event loop of the connections, in a thread that is started with the first one."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="grpo-mcp", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, _loop)


class Connection:
    """A session with one server, which begins to start; all but `call` and `close` are for the event loop only."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.tools: tuple[Any, ...] = ()
        self._session: Any = None
        self._process: _Process | None = None
        self._dead: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live())
        self._lost = ""

    @property
    def lost(self) -> bool:
        """Whether the server is gone."""
        return bool(self._lost)

    def give_files(self, files: Mapping[str, str]) -> None:
        """Writes files into the server's working directory; a server at an address has none."""
        if self._process is not None:
            self._process.give_files(files)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Calls a tool, from any thread, and returns what the policy is shown. Raises TransientError."""
        text: str = on_loop(self._call(name, arguments)).result()
        return text

    def close(self) -> Future[None]:
        """Ends the session and a started server, from any thread; the future is done when all processes are dead."""
        return on_loop(self._close())

    async def ready(self) -> None:
        """Waits until the server has listed its tools. Raises TransientError."""
        try:
            async with asyncio.timeout(STARTING):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self._lost = self._lost or f"it did not answer within {STARTING:g} s"
            self._closing.set()
            self._task.cancel()
            raise self._failure("did not start", self._lost) from None

    async def _live(self) -> None:
        """Holds the session open from start to end: it must be entered and left in one task."""
        from mcp import ClientSession

        try:
            async with self._streams() as streams, ClientSession(*streams) as session:
                await _greet(session)
                self.tools = await _listed(session)
                self._session = session
                self._ready.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            self._lost = self._lost or _reason(error)
            if not self._ready.done():
                self._ready.set_exception(self._failure("did not start", self._lost))
                self._ready.exception()  # nobody may be waiting any more
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._lost = self._lost or "its episode is over"

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        if self.server.url:
            from mcp.client.streamable_http import streamable_http_client

            async with streamable_http_client(self.server.url) as streams:
                yield streams
            return
        start = start_in_session if self.server.session else start_server
        starting: asyncio.Future[_Process] = asyncio.ensure_future(asyncio.to_thread(start, self.server))
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_end_started)
            raise
        try:
            async with message_streams(self._process, self._note_end) as streams:
                yield streams
        finally:
            self._dead = _ended(self._process)

    def _note_end(self) -> None:
        if self._process is not None and not self._lost:
            self._process.errors.wait()
        self._lost = self._lost or "its process ended"

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        from mcp import MCPError
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, InputRequiredResult
        from pydantic import TypeAdapter, ValidationError

        seconds, shown = self.server.seconds, self.server.shown
        try:
            json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, TypeError, RecursionError) as error:
            return error_text(f"the arguments cannot be sent: {error}", shown)
        if self.lost:
            raise self._failure("is lost", self._lost)
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=dict(arguments)))
        try:
            async with asyncio.timeout(seconds):
                result = await self._session.send_request(request, TypeAdapter(CallToolResult | InputRequiredResult))
        except TimeoutError:
            if await self._answers():
                return error_text(f"the call took longer than {seconds:g} s and was given up", shown)
            raise self._failure("hangs", f"'{name}' gave no answer within {seconds:g} s, and nor did a ping") from None
        except MCPError as error:
            if self.lost:
                raise self._failure("is lost", self._lost) from None
            if self.server.url and not await self._answers():  # the package's own error, of a connection that broke
                self._lost = error.message
                raise self._failure("is lost", self._lost) from None
            return error_text(error.message, shown)
        except ValidationError as error:
            reason = f"what it answered to '{name}' is no result: {error.errors(include_url=False)[0]['msg']}"
            raise self._failure("breaks the protocol", reason) from None
        except Exception as error:  # of the transport, whichever it is
            raise self._failure("is lost", _reason(error)) from None
        if isinstance(result, InputRequiredResult):
            return error_text("the tool asks for an answer of a user, and there is none here", shown)
        return text_of(result, shown)

    async def _answers(self) -> bool:
        from mcp import MCPError
        from mcp_types import METHOD_NOT_FOUND

        try:
            async with asyncio.timeout(ALIVE):
                await self._session.send_ping()
        except MCPError as error:  # of a server at an address, it may be the package's own
            return error.code == METHOD_NOT_FOUND if self.server.url else not self.lost
        except Exception:
            return False
        return True

    async def _close(self) -> None:
        self._closing.set()
        if self._session is None:
            self._task.cancel()  # it has not started yet
        _, unended = await asyncio.wait([self._task], timeout=_ENDING)
        for task in unended:
            task.cancel()
        if self._dead is not None:
            async with asyncio.timeout(_ENDING):
                await asyncio.shield(self._dead)

    def _failure(self, what: str, reason: str) -> TransientError:
        last_words = "" if self._process is None else self._process.errors.last_words()
        last_words = f". The end of its error output: {last_words}" if last_words else ""
        return TransientError(f"MCP server '{self.server.name}' {what}: {reason}{last_words}")


def _end_started(starting: asyncio.Future[_Process]) -> None:
    if starting.exception() is None:
        _ended(starting.result())


def _ended(process: _Process) -> asyncio.Task[None]:
    async def watch() -> None:
        while not process.gone():
            await asyncio.sleep(0.02)

    process.end()
    task = asyncio.create_task(watch())
    _ending.add(task)
    task.add_done_callback(_ending.discard)
    return task


async def _greet(session: Any) -> None:
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
            raise
        await session.discover()


async def _listed(session: Any) -> tuple[Any, ...]:
    from mcp_types import PaginatedRequestParams

    tools: list[Any] = []
    cursor = None
    for _ in range(_MOST_PAGES):
        page = await session.list_tools(params=None if cursor is None else PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(tools)


def _reason(error: BaseException) -> str:
    """Returns why something failed, in one line; of a group, why its first member did."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    words = " ".join(str(error).split())
    if isinstance(error, TransientError):
        return words.partition(": ")[2] or words
    return f"{type(error).__name__}: {words}"[:_LONGEST] if words else type(error).__name__


def text_of(result: Any, shown: int) -> str:
    """Returns a `CallToolResult` as text within `shown` characters; an error as an object with the key `error`."""
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = shortened("\n".join(parts), shown)
    if result.is_error:
        return error_text(text or "the tool failed and gave no reason", shown)
    return text or "(the tool returned nothing)"


def error_text(reason: str, shown: int) -> str:
    """Returns an error as the policy is shown it."""
    return json.dumps({"error": shortened(reason, shown)}, ensure_ascii=False)


def shortened(text: str, most: int) -> str:
    """Returns the beginning and the end of a text that has more characters than `most`."""
    return text if len(text) <= most else text[: most // 2] + _CUT + text[most // 2 - most :]


def _part(block: Any) -> str:
    kind = block.type
    if kind == "text":
        return str(block.text)
    if kind in ("image", "audio"):
        return _UNSEEN.format(what=f"an {kind} ({block.mime_type})")
    if kind == "resource_link":
        return f"[a link to the resource {block.name}: {block.uri}]"
    if kind == "resource" and hasattr(block.resource, "text"):
        return str(block.resource.text)
    if kind == "resource":
        return _UNSEEN.format(what=f"a file ({block.resource.mime_type or 'of bytes'})")
    return _UNSEEN.format(what=f"a part of the kind {kind}")
