"""Defines the limits of a server: time, memory and connections of a caller, and who may call."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller can cost at most. Sizes in bytes, times in seconds."""

    connections: int = 64  # open at once; one more closes the one that has waited longest for a request
    head_bytes: int = 2**16  # of a request line and its headers
    head_fields: int = 100
    head_seconds: float = 10.0  # in which a connection has to send a whole request line with its headers
    # of a request's body; None: a stream of any length, which the application reads as it goes
    body_bytes: int | None = 2**20
    body_bytes_of: Mapping[str, int | None] = field(default_factory=dict)  # the same for single paths
    # bytes per second that a body with a limit arrives with, averaged after the first `silence` seconds
    least_rate: int = 2**16
    silence: float = 60.0  # without a byte of an unfinished body, or without the caller taking a byte of its answer
    linger: float = 2.0  # for which the rest of a body is read and forgotten once its request was answered
    idle: int = 5  # between two requests of a connection
    stop: int = 5  # that unfinished answers get when the server stops


@dataclass(frozen=True, slots=True)
class Callers:
    """Who is answered."""

    # what `Authorization: Bearer` has to name, or None: the application checks its callers itself
    token: str | None = None
    # names, without a port, that the `Host` header may have beside those of the loopback; None: any name. Only a server
    # whose callers need a secret may answer to any: a web page whose name was bound to 127.0.0.1 after it was loaded
    # sends that name (DNS rebinding)
    hosts: Collection[str] | None = ()
    # requests of pages that this server itself served are answered; all other web pages, which name their `Origin`,
    # never are
    own_pages: bool = False


def is_loopback(host: str) -> bool:
    """Returns whether an address, or every one of a name, is reached from this machine alone; "" is any address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host or "0.0.0.0", None)}
    except OSError:
        return False
    return all(map(is_loopback_address, addresses))


def is_loopback_address(text: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(text).is_loopback
    return False
