"""Starts the gateway as an HTTP server.

with gateway_server(desk) as server:
    print(f"http://127.0.0.1:{server.port}/v1")
"""

from __future__ import annotations

import socket

from grpo.core.gateway.app import PAUSE, gateway_app
from grpo.core.gateway.conversation import Desk
from grpo.core.http.serving import Callers, HttpServer, Limits, bound

LIMITS = Limits(
    connections=4096,  # of all episodes; each may have 64 requests open
    body_bytes=None,  # the gateway holds bodies to its own limit, and refuses a larger one as its API does
    idle=600,  # longer than tools run, so that no client sends on a connection that is being closed
    stop=1,
)


def gateway_server(desk: Desk, listener: socket.socket | None = None, pause: float = PAUSE) -> HttpServer:
    """Returns the server of a gateway, which is still to be started.

    Args:
        desk: answers requests; it is called in the event loop of the server's thread.
        listener: a bound socket, for example one in a folder that a session sees; None: a free port of 127.0.0.1.
    """
    # A key is a secret that no web page knows, so any name of this machine will do: sessions have their own.
    return HttpServer(gateway_app(desk, pause), listener or bound("127.0.0.1", 0), Callers(hosts=None), LIMITS)
