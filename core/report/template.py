"""Renders chat templates in a process of their own, because a template is untrusted code that may not end."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from grpo.plugins.child_process import ChildProcess, receive_message, send_message

SECONDS = 5.0  # that rendering may take beyond what every prompt is given
EACH = 0.005  # seconds that every prompt is given
MEMORY = 1 << 30  # bytes
LONGEST = 1_000_000  # characters of a rendered prompt


class Renderer:
    """A process that renders; it begins with the first prompt, and ends with this object or this process."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._runaway: set[str] = set()
        self._lock = threading.Lock()

    def rendered(self, template: str, messages: Any, tokens: Mapping[str, Any]) -> str:
        """Returns the text of a prompt; ValueError where the template refuses, or takes too much time or memory."""
        with self._lock:
            if template not in self._runaway:
                answer = self._asked({"template": template, "messages": messages, "tokens": tokens})
                if answer is not None:
                    if "text" in answer:
                        return str(answer["text"])
                    raise ValueError(answer["error"])
                self._runaway.add(template)
        raise ValueError(f"it takes more than {SECONDS:g} s, or than {MEMORY >> 20} MiB")

    def _asked(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
        data = json.dumps(question).encode()
        process = self._process = self._process or self._started()
        try:
            send_message(process.channel, data)
            answer: dict[str, Any] = json.loads(receive_message(process.channel))
        except OSError:
            self._process = None
            process.end()
            return None
        return answer

    def _started(self) -> ChildProcess:
        nowhere = subprocess.DEVNULL
        process = ChildProcess(__name__, [SECONDS, MEMORY], environment=os.environ, stdout=nowhere, stderr=nowhere)
        weakref.finalize(self, process.end)
        return process


def main(descriptor: int, seconds: float, memory: int) -> None:
    """Renders what is asked, as JSON; the alarm of the system ends a process that takes too long."""
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory)):
        with suppress(OSError, ValueError):  # a lower limit stands already, or the system has none
            resource.setrlimit(kind, (most, most))
    from transformers.utils.chat_template_utils import render_jinja_template

    channel = socket.socket(fileno=descriptor)
    left = seconds
    with suppress(ConnectionError):  # the other end is gone
        while True:
            asked = json.loads(receive_message(channel))
            began = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, left)
            try:
                [text], _ = render_jinja_template(
                    [asked["messages"]], chat_template=asked["template"], add_generation_prompt=True, **asked["tokens"]
                )
                answer = {"text": text} if len(text) <= LONGEST else {"error": f"it wrote {len(text)} characters"}
            except Exception as error:  # whatever its program ends in
                answer = {"error": f"{type(error).__name__}: {error}"[:LONGEST]}
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            left = min(max(left - (time.monotonic() - began), 0.0) + EACH, seconds)
            send_message(channel, json.dumps(answer).encode())
