"""Reads what callers of a rollout server send, within limits of size and time, and says who may call at all.

A server without a token listens on the loopback alone, and there answers requests that name the loopback as their
`Host`: a web page whose name was bound to 127.0.0.1 after it was loaded names itself (DNS rebinding). No request of a
web page, which names its `Origin`, is answered, with a token or without.
"""

from __future__ import annotations

import io
import ipaddress
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from email.message import Message
from urllib.parse import urlsplit

from grpo.core.rollout.server.capabilities import TOKEN
from grpo.plugins.errors import UsageError

SILENCE = 60.0  # seconds without a byte after which either side gives the other up
HEAD_SECONDS = 10.0  # in which the headers of a request arrive
LARGEST_HEAD = 2**16  # bytes of them
LEAST_RATE = 2**16  # bytes a second of a body that is read as a whole
SMALL = 2**16  # bytes of a body that names a few things
LARGEST = 2**28  # bytes of prompts
LARGEST_BODY: Mapping[str, int] = {
    "/claim": SMALL,
    "/join": SMALL,
    "/generate": LARGEST,
    "/fingerprints": SMALL,
    "/adapter_fingerprints": SMALL,
    "/reset_prefix_cache": SMALL,
}


class Forbidden(Exception):
    """Who calls may not, whatever it asks."""


def refuse_open(host: str, token: str | None) -> None:
    """Refuses to listen without a token where other machines reach.

    Raises:
        UsageError: with the remedy.
    """
    if token is None and not _is_loopback(host):
        raise UsageError(
            f"--host {host}: anybody who reaches this port could replace the weights. Set {TOKEN} to a secret, for the "
            "server and for the run, or leave --host out and use an SSH tunnel."
        )


def refuse_web_page(headers: Message, token: str | None) -> None:
    """Refuses what a web page may have sent.

    Args:
        headers: of the request.
        token: what callers have to know, or None.

    Raises:
        Forbidden: says why.
    """
    if headers.get("Origin") is not None:
        raise Forbidden("web pages are not answered")
    if token is not None:
        return
    names = headers.get_all("Host", [])
    try:
        name = urlsplit(f"//{names[0]}").hostname if len(names) == 1 else None
    except ValueError:
        name = None
    if name is None or (name != "localhost" and not _is_address_of_loopback(name)):
        raise Forbidden(
            f"this server has no token and answers at the loopback alone: name it 127.0.0.1 or localhost, or set "
            f"{TOKEN} for the server and for the run"
        )


def body_size(headers: Message, path: str) -> int:
    """Returns how many bytes a request has behind its headers, before any is read.

    Raises:
        ValueError: it does not say, or has more than any request of this kind.
    """
    said, most = headers.get("Content-Length", ""), LARGEST_BODY.get(path, SMALL)
    if not re.fullmatch(r"[0-9]{1,20}", said):
        raise ValueError("Content-Length is no number")
    if int(said) > most:
        raise ValueError(f"{path} takes {most} bytes at most")
    return int(said)


class PacedSocket(io.RawIOBase):
    """A connection that is read within limits.

    Until `begin_body` is called, what arrives is taken for headers.

    Args:
        connection: to the caller.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until: float | None = time.monotonic() + HEAD_SECONDS
        self._left: int | None = LARGEST_HEAD

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: object) -> int:
        """Waits for bytes.

        Raises:
            TimeoutError: they did not come in time.
            ConnectionError: there are more than headers have.
        """
        seconds = SILENCE
        if self._until is not None:
            seconds = min(seconds, self._until - time.monotonic())
            if seconds <= 0:
                raise TimeoutError("the request took too long")
        self._connection.settimeout(seconds)
        try:
            count = self._connection.recv_into(buffer)  # type: ignore[arg-type]
        finally:
            self._connection.settimeout(SILENCE)
        if self._left is not None:
            self._left -= count
            if self._left < 0:
                raise ConnectionError("the request has too many headers")
        return count

    def begin_body(self, size: int | None = None) -> None:
        """The headers are over; a body of a known size arrives in time, another one takes as long as it needs."""
        self._left = None
        self._until = None if size is None else time.monotonic() + SILENCE + size / LEAST_RATE


def _is_loopback(host: str) -> bool:
    """Says whether nobody but this machine reaches an address or a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host or "0.0.0.0", None)}
    except OSError:
        return False
    return all(map(_is_address_of_loopback, found))


def _is_address_of_loopback(text: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(text).is_loopback
    return False
