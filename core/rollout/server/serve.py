"""A rollout engine behind HTTP: `grpo serve-rollouts` runs it, core/rollout/server/client.py is its client.

In: requests of one run. Out: what the engine says.

Theory of operation. The thread that started the engine runs every call on it, one at a time; other threads read
requests and write answers. So `/state` is answered at once, also in the middle of a long rollout. Two numbers guard
against serving other weights than a run thinks: the incarnation is drawn anew by each start of a server, `handed`
counts how often weights were handed over, by whomever. Every call but `/state` names both and is refused, on the
engine's thread, when either has changed. A call that hands weights over raises `handed` before it begins, so weights
that arrived by half belong to nobody. A caller whose handing over broke off cannot know whether it had begun: it raises
`handed` itself (`/claim`), which makes a straggler stale.

An answer is lines of JSON: what there is to tell early, blank ones to show that the server lives, and a last one with
the result or the error. Tensors come as frames (core/rollout/server/wire.py). Nothing is pickled, no call names code to
run.
"""

from __future__ import annotations

import hmac
import io
import json
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from grpo.core.rollout.engine.link import ServedEngine
from grpo.core.rollout.server.capabilities import ServerCapabilities, card_to_json
from grpo.core.rollout.server.request import (
    SILENCE,
    Forbidden,
    PacedSocket,
    body_size,
    refuse_open,
    refuse_web_page,
)
from grpo.core.rollout.server.wire import LARGEST, Chunked, Unframed, exactly
from grpo.core.rollout.sync.delta import HeldWeights
from grpo.core.rollout.sync.group import Meeting
from grpo.core.rollout.sync.payload import Adapter
from grpo.core.rollout.types import Sampled, SamplingParams
from grpo.plugins.errors import UsageError

BEAT = 5.0  # seconds between two signs of life
LOOK = 0.5  # seconds between two looks at signals
BYTES = "application/octet-stream"  # no web page can send it to another site without asking first
CONNECTIONS = 64  # answered at once: a run has one or two for each of its processes
CLAIM = "/claim"
KEEP = "Grpo-Keep"  # the header that asks for a copy of the weights, to be changed by the next ones
Say = Callable[[dict[str, Any]], None]


class Call:
    """Something to do with the engine, and the lines that answer it."""

    def __init__(self, work: Callable[[Say], Any]) -> None:
        self._work = work
        self.lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def run(self) -> None:
        """Does it, on the engine's thread; what goes wrong is the answer."""
        try:
            self.lines.put({"result": self._work(self.lines.put)})
        except Stale as stale:
            self.lines.put({"error": str(stale), "kind": "stale"})
        except UsageError as error:
            self.lines.put({"error": str(error), "kind": "usage"})
        except Exception as error:
            reason = " ".join(str(error).split())[:500]
            self.lines.put({"error": f"{type(error).__name__}: {reason}", "kind": "failed"})
        finally:
            self.lines.put(None)


class Stale(Exception):
    """The caller thinks of weights that this server does not hold."""


class RolloutServer:
    """Serves one engine.

    Args:
        address: host and port to listen on; taken at once, answered on from `serve`.
        token: what callers have to know, or None.
        largest: bytes of one tensor, at most, with what says where it changed.

    Raises:
        OSError: the address is taken.
        UsageError: other machines reach it, and there is no token.
    """

    def __init__(self, address: tuple[str, int], token: str | None, largest: int = LARGEST) -> None:
        refuse_open(address[0], token)
        self.incarnation = secrets.token_hex(8)
        self.handed = 0
        self.token = token
        self.largest = min(largest, LARGEST)
        self.calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self.engine: ServedEngine
        self.card: ServerCapabilities
        self._held = HeldWeights()
        self._adapter = Adapter(1, {})  # names and shapes of the one that was handed over last
        self._listener = _Listener(address, self)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.server_address[1])

    def serve(self, engine: ServedEngine, card: ServerCapabilities) -> None:
        """Answers until `stop`; this thread does the engine's work."""
        self.engine, self.card = engine, card
        self._listener.server_activate()
        listening = threading.Thread(target=self._listener.serve_forever, name="rollout server", daemon=True)
        listening.start()
        try:
            while (call := self._next()) is not None:
                call.run()
        finally:
            self._listener.shutdown()
            self._listener.server_close()

    def _next(self) -> Call | None:
        """Waits for a call, or the end; a signal that another thread was given is handled here in between."""
        while True:
            with suppress(queue.Empty):
                return self.calls.get(timeout=LOOK)

    def stop(self) -> None:
        """Ends `serve` after the call that it is at."""
        self.calls.put(None)

    def state(self) -> dict[str, Any]:
        """Returns what the server is and which weights it holds."""
        return {**card_to_json(self.card), "incarnation": self.incarnation, "handed": self.handed}

    def claim(self) -> int:
        """Makes whatever was called before, and may still be on its way, stale; returns the number to name now."""
        self.handed += 1
        return self.handed

    def put_weights(self, items: Unframed, keep: bool) -> int:
        """Loads weights as they arrive, and keeps a copy where asked to; returns the number of this handing over."""
        self.handed += 1
        self.engine.put_weights(self._held.taken(items, keep=keep))
        return self.handed

    def receive(self, items: Unframed) -> int:
        """Loads weights from the group, as they are announced; returns the number of this handing over."""
        self.handed += 1
        self.engine.receive(items.announced())
        return self.handed

    def put_adapter(self, items: Unframed, rank: int) -> int:
        """Loads an adapter; returns the number of this handing over."""
        self.handed += 1
        adapter = Adapter(rank, dict(HeldWeights().taken(items, keep=False)))
        self.engine.put_adapter(adapter)
        self._adapter = Adapter(rank, {name: tensor.to("meta") for name, tensor in adapter.tensors.items()})
        return self.handed

    def adapter_fingerprints(self, seed: int) -> dict[str, int]:
        """Reads the adapter as the engine computes with it."""
        return dict(self.engine.adapter_fingerprints(self._adapter, seed))

    def generate(self, body: dict[str, Any], say: Say) -> int:
        """Samples; completions are told as they end. Returns how many there were."""
        prompts = [prompt for prompt, copies in body["prompts"] for _ in range(copies)]
        params = SamplingParams(**{**body["params"], "eos_ids": tuple(body["params"]["eos_ids"])})

        def on_done(numbers: Sequence[int], done: Sequence[Sampled]) -> None:
            say({"numbers": list(numbers), "completions": [_plain(one) for one in done]})

        return len(self.engine.generate(prompts, params, on_done))

    def refuse_stale(self, incarnation: str, handed: int) -> None:
        """Refuses a call that thinks of other weights.

        Raises:
            Stale: the server was restarted, or somebody handed weights over.
        """
        if incarnation != self.incarnation:
            raise Stale("the rollout server was restarted and holds the weights of its file")
        if handed != self.handed:
            raise Stale("weights were handed to the rollout server by another run; each run needs a server of its own")


class _Listener(ThreadingHTTPServer):
    """Answers each connection in a thread of its own, and no more than `CONNECTIONS` at once."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], owner: RolloutServer) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler, bind_and_activate=False)
        self.owner = owner
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        try:
            self.server_bind()
        except OSError:
            self.server_close()
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begins to answer, or hangs up where too many are being answered."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers, and makes room for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away is told nothing."""


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    timeout = SILENCE

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keeps quiet: the run writes the log."""

    def setup(self) -> None:
        """Reads within limits."""
        super().setup()
        self.rfile.close()
        self._paced = PacedSocket(self.connection)
        self.rfile = io.BufferedReader(self._paced)

    def do_GET(self) -> None:
        """Answers `/state`."""
        if not self._admitted():
            return
        if self.path == "/state":
            self._json(200, self.server.owner.state())
        else:
            self._json(404, {"error": f"no {self.path} here"})

    def do_POST(self) -> None:
        """Hands a call to the engine's thread and relays its answer."""
        if not self._admitted():
            return
        if self.headers.get("Content-Type") != BYTES:
            self._json(415, {"error": f"send {BYTES}"})
            return
        try:
            incarnation, handed = self.headers["Grpo-Incarnation"], int(self.headers["Grpo-Handed"])
            work = self._work()
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            self._json(400, {"error": f"not a call of this protocol: {error}"})
            return
        if work is None:
            self._json(404, {"error": f"no {self.path} here"})
            return

        def guarded(say: Say) -> Any:
            self.server.owner.refuse_stale(incarnation, self.server.owner.handed if path == CLAIM else handed)
            return work(say)

        path = self.path
        call = Call(guarded)
        self.server.owner.calls.put(call)
        self._relay(call)

    def _work(self) -> Callable[[Say], Any] | None:
        """Returns what a request asks for; small bodies are read here, weights while the engine takes them."""
        owner = self.server.owner
        self._paced.begin_body()
        if self.path == "/weights":
            keep = self.headers.get(KEEP) == "1"
            return lambda say: self._received(partial(owner.put_weights, keep=keep))
        if self.path == "/announced":
            return lambda say: self._received(owner.receive)
        if self.path == "/adapter":
            rank = int(self.headers["Grpo-Rank"])
            return lambda say: self._received(partial(owner.put_adapter, rank=rank))
        size = body_size(self.headers, self.path)
        self._paced.begin_body(size)
        body = json.loads(exactly(self.rfile.read, size))
        if self.path == CLAIM:
            return lambda say: owner.claim()
        if self.path == "/join":
            meeting = Meeting.from_json(body)
            return lambda say: owner.engine.join(meeting)
        if self.path == "/generate":
            return lambda say: owner.generate(body, say)
        if self.path == "/fingerprints":
            return lambda say: dict(owner.engine.fingerprints(body["seed"]))
        if self.path == "/adapter_fingerprints":
            return lambda say: owner.adapter_fingerprints(body["seed"])
        if self.path == "/reset_prefix_cache":
            return lambda say: owner.engine.reset_prefix_cache()
        return None

    def _received(self, take: Callable[[Unframed], int]) -> int:
        """Lets the engine take the tensors of a request; the rest is read too, so that the sender hears the answer."""
        items = Unframed(Chunked(self.rfile, self.rfile.readline), self.server.owner.largest)
        try:
            return take(items)
        finally:
            with suppress(OSError):
                items.drain()

    def _admitted(self) -> bool:
        """Says whether the caller may call and knows the token, and tells it when it does not."""
        token = self.server.owner.token
        try:
            refuse_web_page(self.headers, token)
        except Forbidden as refused:
            self._json(403, {"error": str(refused)})
            return False
        if token is None:
            return True
        given = self.headers.get("Authorization", "").encode(errors="replace")
        if hmac.compare_digest(given, f"Bearer {token}".encode()):
            return True
        self._json(401, {"error": "the token is missing or wrong"})
        return False

    def _json(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self._begin(status, len(text))
        self.wfile.write(text)

    def _begin(self, status: int, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _relay(self, call: Call) -> None:
        self._begin(200, None)
        while True:
            try:
                line = call.lines.get(timeout=BEAT)
            except queue.Empty:
                self.wfile.write(b"\n")
                continue
            if line is None:
                return
            self.wfile.write(json.dumps(line).encode() + b"\n")


def _plain(sampled: Sampled) -> list[Any]:
    return [sampled.token_ids, sampled.logprobs, sampled.finish_reason, sampled.most_probable]


def sampled_from(values: Sequence[Any]) -> Sampled:
    """Returns a completion as it was before it was written as JSON."""
    ids, logprobs, reason, others = values
    others = tuple(tuple((token, logprob) for token, logprob in step) for step in others)
    return Sampled(tuple(ids), tuple(logprobs), reason, others)
