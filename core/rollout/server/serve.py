"""Serves a rollout engine over HTTP: `grpo serve-rollouts` runs it, core/rollout/server/client.py is its client.

How it works. The thread that started the engine runs every call on it, one at a time; the thread of the HTTP server
(core/http/) reads requests and writes answers, so `/state` is answered at once. Two numbers guard against serving other
weights than a run thinks: the incarnation is drawn anew by each start, `handed` counts the syncs. Every call but
`/state` names both and is refused, on the engine's thread, when either has changed. `handed` is raised before a sync,
so weights that arrived by half belong to nobody. A caller whose sync broke off raises it itself (`/claim`), which makes
a straggler stale.

An answer is lines of JSON: completions as they end, blank lines as signs of life, and a last one with the result or the
error. Tensors come as frames (core/rollout/server/wire.py). Nothing is pickled, no call names code to run. A server
without a token listens on the loopback alone and answers to its names alone.
"""

from __future__ import annotations

import asyncio
import json
import queue
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive

from grpo.core.http.guard import routed
from grpo.core.http.limits import Callers, is_loopback
from grpo.core.http.serving import HttpServer, bound
from grpo.core.rollout.engine.link import ServedEngine
from grpo.core.rollout.server import wire
from grpo.core.rollout.server.capabilities import TOKEN, ServerCapabilities
from grpo.core.rollout.sync.delta import HeldWeights
from grpo.core.rollout.sync.group import Meeting
from grpo.core.rollout.sync.payload import Adapter
from grpo.core.rollout.types import Sampled, SamplingParams
from grpo.plugins.errors import UsageError

BEAT = 5.0  # seconds between two signs of life
LOOK = 0.5  # seconds between two looks at signals
Say = Callable[[dict[str, Any]], None]
Work = Callable[[Say], Any]


class Stale(Exception):
    """The caller thinks of weights that this server does not hold."""


class Call:
    """Work for the engine, and the lines that answer it, for the event loop that it is made in."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def run(self) -> None:
        """Does it, on the engine's thread; an error is the answer."""
        try:
            self._say({"result": self._work(self._say)})
        except Stale as stale:
            self._say({"error": str(stale), "kind": "stale"})
        except UsageError as error:
            self._say({"error": str(error), "kind": "usage"})
        except Exception as error:
            reason = " ".join(str(error).split())[:500]
            self._say({"error": f"{type(error).__name__}: {reason}", "kind": "failed"})
        finally:
            self.end()

    def end(self) -> None:
        """Ends the answer; without a result the caller takes the server for lost."""
        self._say(None)

    def _say(self, line: dict[str, Any] | None) -> None:
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    async def answer(self) -> AsyncIterator[bytes]:
        """Yields the lines as they come, and blank ones while there are none."""
        while True:
            try:
                line = await asyncio.wait_for(self._lines.get(), BEAT)
            except TimeoutError:
                yield b"\n"
                continue
            if line is None:
                return
            yield json.dumps(line).encode() + b"\n"


class RolloutServer:
    """Serves one engine at `address`, host and port, taken at once and answered on from `serve`.

    `largest`: the most bytes of one tensor in transfer. Raises OSError if the address is taken; UsageError if other
    machines reach it, and there is no token.
    """

    def __init__(self, address: tuple[str, int], token: str | None, largest: int = wire.LARGEST) -> None:
        refuse_open(address[0], token)
        self.incarnation = secrets.token_hex(8)
        self.handed = 0
        self.largest = min(largest, wire.LARGEST)
        self.calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self.engine: ServedEngine
        self.card: ServerCapabilities
        self._held = HeldWeights()
        self._adapter = Adapter(1, {})  # names and shapes of the one that was handed over last
        calls = [Route(path, self._call, methods=["POST"]) for path in wire.LARGEST_BODY]
        app = routed([Route("/state", self._answer_state), *calls])
        callers = Callers(token, hosts=() if token is None else None)
        self.http = HttpServer(app, bound(*address), callers, wire.LIMITS)

    @property
    def port(self) -> int:
        return self.http.port

    def serve(self, engine: ServedEngine, card: ServerCapabilities) -> None:
        """Answers until `stop`; this thread does the engine's work."""
        self.engine, self.card = engine, card
        self.http.start()
        try:
            while (call := self._next()) is not None:
                call.run()
        finally:
            with suppress(queue.Empty):
                while True:
                    if (call := self.calls.get_nowait()) is not None:
                        call.end()
            self.http.stop()

    def _next(self) -> Call | None:
        """Waits for a call, or the end; a signal that another thread was given is handled here in between."""
        while True:
            with suppress(queue.Empty):
                return self.calls.get(timeout=LOOK)

    def stop(self) -> None:
        """Ends `serve` after the call that it is at."""
        self.calls.put(None)

    def state(self) -> dict[str, Any]:
        return {**asdict(self.card), "incarnation": self.incarnation, "handed": self.handed}

    def claim(self) -> int:
        """Makes earlier calls that may still be on their way stale; returns the number to name now."""
        self.handed += 1
        return self.handed

    def put_weights(self, items: wire.Unframed, keep: bool) -> int:
        """Loads weights as they arrive, and keeps a copy if asked to; returns the number of this sync."""
        self.handed += 1
        self.engine.put_weights(self._held.taken(items, keep=keep))
        return self.handed

    def receive(self, items: wire.Unframed) -> int:
        """Loads weights from the group, as they are announced; returns the number of this sync."""
        self.handed += 1
        self.engine.receive(items.announced())
        return self.handed

    def put_adapter(self, items: wire.Unframed, rank: int) -> int:
        """Loads an adapter; returns the number of this sync."""
        self.handed += 1
        adapter = Adapter(rank, dict(HeldWeights().taken(items, keep=False)))
        self.engine.put_adapter(adapter)
        self._adapter = Adapter(rank, {name: tensor.to("meta") for name, tensor in adapter.tensors.items()})
        return self.handed

    def adapter_fingerprints(self, seed: int) -> dict[str, int]:
        return dict(self.engine.adapter_fingerprints(self._adapter, seed))

    def generate(self, body: dict[str, Any], say: Say) -> int:
        """Samples completions and sends each as it ends. Returns how many there were."""
        prompts = [prompt for prompt, copies in body["prompts"] for _ in range(copies)]
        params = SamplingParams(**{**body["params"], "eos_ids": tuple(body["params"]["eos_ids"])})

        def on_done(numbers: Sequence[int], done: Sequence[Sampled]) -> None:
            say({"numbers": list(numbers), "completions": [wire.sampled_to_json(sampled) for sampled in done]})

        return len(self.engine.generate(prompts, params, on_done))

    def refuse_stale(self, incarnation: str, handed: int) -> None:
        """Refuses a call that thinks of other weights. Raises Stale."""
        if incarnation != self.incarnation:
            raise Stale("the rollout server was restarted and holds the weights of its file")
        if handed != self.handed:
            raise Stale("weights were handed to the rollout server by another run; each run needs a server of its own")

    async def _answer_state(self, request: Request) -> Response:
        return JSONResponse(self.state())

    async def _call(self, request: Request) -> Response:
        path = request.url.path
        if request.headers.get("content-type") != wire.BYTES:
            raise HTTPException(415, f"a call of this protocol has another type: send it as Content-Type: {wire.BYTES}")
        try:
            incarnation, handed = request.headers[wire.INCARNATION], int(request.headers[wire.HANDED])
            work = await self._work(request, path)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise HTTPException(400, f"not a call of this protocol: {error}") from None

        def guarded(say: Say) -> Any:
            self.refuse_stale(incarnation, self.handed if path == wire.CLAIM else handed)
            return work(say)

        call = Call(guarded)
        self.calls.put(call)
        return _Relayed(call.answer(), media_type="application/json")

    async def _work(self, request: Request, path: str) -> Work:
        """Returns the work of a request; small bodies are read here, weights while the engine takes them."""
        if path == "/weights":
            return self._received(request, partial(self.put_weights, keep=request.headers.get(wire.KEEP) == "1"))
        if path == "/announced":
            return self._received(request, self.receive)
        if path == "/adapter":
            return self._received(request, partial(self.put_adapter, rank=int(request.headers[wire.RANK])))
        body = json.loads(await request.body())
        if path == "/join":
            meeting = Meeting.from_json(body)
            return lambda say: self.engine.join(meeting)
        works: dict[str, Work] = {
            wire.CLAIM: lambda say: self.claim(),
            "/generate": lambda say: self.generate(body, say),
            "/fingerprints": lambda say: dict(self.engine.fingerprints(body["seed"])),
            "/adapter_fingerprints": lambda say: self.adapter_fingerprints(body["seed"]),
            "/reset_prefix_cache": lambda say: self.engine.reset_prefix_cache(),
        }
        return works[path]

    def _received(self, request: Request, take: Callable[[wire.Unframed], int]) -> Work:
        """Lets the engine take the tensors of a request; the rest is read too, so that the sender hears the answer."""
        items = wire.Unframed(_Body(request), self.largest)

        def work(say: Say) -> int:
            try:
                return take(items)
            finally:
                with suppress(OSError):
                    items.drain()

        return work


class _Body:
    def __init__(self, request: Request) -> None:
        self._parts = request.stream()
        self._loop = asyncio.get_running_loop()
        self._part = b""

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes, and none at the end; waits for no more than that. Raises ConnectionError."""
        if not self._part:
            self._part = asyncio.run_coroutine_threadsafe(self._next(size), self._loop).result()
        data, self._part = self._part[:size], self._part[size:]
        return data

    async def _next(self, size: int) -> bytes:
        """Returns several parts at once, for threads that wait for each other take longer than a part does."""
        parts, length = [], 0
        try:
            while length < size and (part := await anext(self._parts, b"")):
                parts.append(part)
                length += len(part)
        except (ClientDisconnect, HTTPException):
            raise ConnectionError("the request broke off") from None
        return b"".join(parts)


class _Relayed(StreamingResponse):
    async def listen_for_disconnect(self, receive: Receive) -> None:
        await asyncio.Event().wait()


def refuse_open(host: str, token: str | None) -> None:
    """Refuses to listen without a token where other machines reach."""
    if token is None and not is_loopback(host):
        raise UsageError(
            f"--host {host}: anybody who reaches this port could replace the weights. Set {TOKEN} to a secret, for the "
            "server and for the run, or leave --host out and use an SSH tunnel."
        )
