"""Runs in a child process: answers each message with itself, its variables, or a process that it started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

from grpo.plugins.child_process import receive_message, send_message


def main(descriptor: int, greeting: str) -> None:
    """Answers until the other end is gone."""
    channel = socket.socket(fileno=descriptor)
    send_message(channel, greeting.encode())
    while True:
        try:
            message = receive_message(channel)
        except ConnectionError:
            return
        if message == b"variables":
            message = json.dumps(sorted(os.environ)).encode()
        elif message == b"start":
            sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            message = str(sleeper.pid).encode()
        elif message == b"exit":
            os._exit(3)
        send_message(channel, message)
