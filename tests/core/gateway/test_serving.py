"""The gateway's server: on a port and on a socket in a folder, with answers that are sent at once."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from patience import PATIENCE
from scripted_desk import KEY, MODEL, ScriptedDesk

from grpo.core.gateway.app import gateway_server
from grpo.core.http.serving import bound


def test_the_system_does_not_hold_back_what_is_sent() -> None:
    """asyncio turns Nagle's algorithm off where a socket names TCP; with it an answer takes 40 ms more."""
    with bound("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.slow
def test_a_gateway_in_a_folder(tmp_path: Path) -> None:
    """An agent without a network reaches it by a socket in a folder that its session sees."""
    path = str(tmp_path / "gateway")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).encode()
    head = f"POST /r/{KEY}/v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(body)}\r\n\r\n"
    with gateway_server(ScriptedDesk(), listener), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(path)
        client.sendall(head.encode() + body)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
