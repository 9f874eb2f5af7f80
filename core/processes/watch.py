"""Ends the processes of a run together: what ends one of them ends all within seconds, and one of them tells the user.

Theory of operation. A process in a collective cannot be told anything, so each has a thread and a connection to process
0 besides. A process that fails says so before it leaves; of one that is killed the connection ends. Process 0 decides
what ended the run: an error counts more than a lost process, and both more than a broken collective. It tells all of
them that, and who tells the user: the process of the error, or the first that is left.

The thread then interrupts the main thread, which unwinds as from Ctrl-C; a silent one has `GRACE` seconds. The
connections carry lines of JSON and a token from process 0, so nobody else can end a run.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

GRACE = 10.0  # seconds for the main thread to unwind
VERDICT = 5.0  # seconds until a process that reported its end goes on without an answer
INTERRUPT = signal.SIGURG  # to the own main thread; whoever has no handler for it ignores it
LINE = 1 << 20  # bytes that somebody may send without a newline
KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 6))  # a machine that is gone: 40 seconds

Kind = Literal["error", "lost", "stopped", "follows"]
PATIENCE: dict[Kind, float] = {
    "error": 0.2,
    "lost": 0.2,
    "stopped": 0.5,
    "follows": 2.0,
}  # seconds in which something better may come


@dataclass(frozen=True, slots=True)
class End:
    """Why a process ended, and with it the run."""

    rank: int  # which one
    code: int  # the exit code of all of them
    why: str  # for the user
    # "error": its own; "lost": it was killed, or its machine; "stopped": by a signal, perhaps the launcher's, because
    # another one ended; "follows": what another one's end did to it
    kind: Kind
    teller: int  # the process that tells the user


class PeerEnded(BaseException):
    """The run ends because of another process; raised in the main thread, and no `except Exception` stops it."""

    def __init__(self, end: End) -> None:
        super().__init__(end.why)
        self.end = end


class Watch:
    """This process's side of the watch. Raises OSError if the processes cannot reach each other.

    `limit`: seconds for all to come. `share`: process 0's value in, on every process the same out. `end`: of the run,
    None while it goes on. `suspected`: some process ended, and the cause is not decided. `over`: this process has said
    all.
    """

    def __init__(self, rank: int, count: int, limit: float, share: Callable[[Any], Any]) -> None:
        self.end: End | None = None
        self.over = self.suspected = False
        self._rank, self._count = rank, count
        self._decided = threading.Event()
        self._unwound = threading.Event()
        self._silent = False  # the main thread needs no interruption: it unwinds already, or is done
        self._reports: list[End] = []
        self._woken, self._wake = socket.socketpair()
        if rank == 0:
            self._peers = _met(count, limit, share)
        else:
            host, port, token = share(None)
            hub = socket.create_connection((host, port), timeout=limit)
            _kept_alive(hub)
            _send(hub, {"token": token, "rank": rank})
            self._peers = {0: hub}
        if threading.current_thread() is threading.main_thread():
            signal.signal(INTERRUPT, self._interrupted)
        self._thread = threading.Thread(target=self._run, name="grpo-watch", daemon=True)
        self._thread.start()

    def report(self, end: End) -> End:
        """Says that this process ends, waits until the end of the run is decided, and returns it."""
        self._silent = True
        if self.end is None:
            if self._rank == 0:
                self._reports.append(end)
                self._wake.send(b".")
            else:
                with suppress(OSError):
                    _send(self._peers[0], {"end": asdict(end)})
            self._decided.wait(VERDICT)
        return self.end or end

    def unwound(self) -> None:
        """Says that the main thread ends, or goes on without the run: the process is not ended for it."""
        self.over = self._silent = True
        self._unwound.set()

    def leave(self) -> None:
        """Leaves without an error."""
        self._silent = True
        for peer in self._peers.values():
            with suppress(OSError):
                _send(peer, {"bye": True})
        with suppress(OSError):
            self._wake.send(b"x")
        self._thread.join(1.0)

    def _interrupted(self, number: int, frame: Any) -> None:
        if self.end is not None and not self._silent:
            self._silent = True
            raise PeerEnded(self.end)

    def _run(self) -> None:
        end = self._listened()
        if end is None:
            return
        self.end = end
        if self._rank == 0:
            for peer in self._peers.values():
                with suppress(OSError):
                    _send(peer, {"end": asdict(end)})
        self._decided.set()
        if not self._silent:
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, INTERRUPT)
        if not self._unwound.wait(GRACE):
            if end.teller == self._rank and sys.__stderr__ is not None:
                with suppress(OSError):
                    os.write(sys.__stderr__.fileno(), f"grpo: {end.why}\n".encode())
            os._exit(end.code)

    def _listened(self) -> End | None:
        ends: list[End] = []
        due: float | None = None
        left: set[int] = set()
        pending = dict.fromkeys(self._peers, b"")
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ, None)
            for rank, peer in self._peers.items():
                peer.settimeout(5.0)
                selector.register(peer, selectors.EVENT_READ, rank)
            while due is None or time.monotonic() < due:
                events = selector.select(None if due is None else max(0.0, due - time.monotonic()))
                new: list[End] = []
                for key, _ in events:
                    if key.data is None:
                        if b"x" in self._woken.recv(64):
                            return None
                        new += self._reports[len([end for end in ends if end.rank == 0]) :]
                        continue
                    rank, peer = key.data, self._peers[key.data]
                    received = _received(peer)
                    pending[rank] += received
                    *lines, pending[rank] = pending[rank].split(b"\n")
                    for line in lines:
                        message = json.loads(line)
                        if "bye" in message:
                            left.add(rank)
                        elif self._rank == 0:
                            new.append(End(**message["end"]))
                        else:
                            return End(**message["end"])  # as it was decided
                    if not received:
                        selector.unregister(peer)
                        if rank not in left and rank not in {end.rank for end in (*ends, *new)}:
                            new.append(_lost(rank, self._count))
                if self._rank != 0:
                    if new:
                        return new[0]
                    if 0 in left:
                        return None  # nobody is left to say more
                    continue
                ends += new
                self.suspected |= bool(ends)
                for end in new:
                    soonest = time.monotonic() + PATIENCE[end.kind]
                    due = soonest if due is None else min(due, soonest)
        return _decided(ends, self._count)


def _decided(ends: list[End], count: int) -> End:
    for kind in ("error", "lost", "stopped"):
        if causes := [end for end in ends if end.kind == kind]:
            return min(causes, key=lambda end: end.rank)
    end = min(ends, key=lambda end: end.rank)
    silent = sorted({*range(count)} - {end.rank for end in ends})
    if not silent:
        return end
    who = ", ".join(map(str, silent))
    return replace(end, why=f"{end.why} Nothing was heard of process {who} of {count}.")


def _lost(rank: int, count: int) -> End:
    why = (
        f"process {rank} of {count} ended without a message: it was killed (is the memory full?), or its machine was. "
        "The run resumes from its last whole checkpoint, or from its beginning when it has none yet."
    )
    return End(rank=rank, code=1, why=why, kind="lost", teller=int(rank == 0))


def _met(count: int, limit: float, share: Callable[[Any], Any]) -> dict[int, socket.socket]:
    host, token = os.environ.get("MASTER_ADDR", "127.0.0.1"), secrets.token_hex(16)
    with _listener(host) as listener:
        share((host, listener.getsockname()[1], token))
        peers: dict[int, socket.socket] = {}
        deadline = time.monotonic() + limit
        while len(peers) < count - 1:
            listener.settimeout(max(0.01, deadline - time.monotonic()))
            peer, _ = listener.accept()
            peer.settimeout(5.0)
            with suppress(OSError, ValueError, KeyError, TypeError):
                hello = json.loads(_line(peer))
                if secrets.compare_digest(hello["token"], token):
                    peers[int(hello["rank"])] = peer
                    _kept_alive(peer)
                    continue
            peer.close()
    return peers


def _listener(host: str) -> socket.socket:
    """Returns a socket that listens at the host's address, or at all where another machine resolves the host."""
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    try:
        return socket.create_server(address[:2], family=family)
    except OSError:
        return socket.create_server(("", 0), family=family)


def _kept_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _line(connection: socket.socket) -> bytes:
    buffer = b""
    while not buffer.endswith(b"\n") and len(buffer) < 4096 and (more := connection.recv(1)):
        buffer += more
    return buffer


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(LINE)
    except OSError:
        return b""


def _send(connection: socket.socket, message: Any) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")
