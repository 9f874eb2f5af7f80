"""Renders chat templates in a process of its own, since a template is a stranger's program that may not end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

SECONDS = 5.0  # that rendering may take beyond what every prompt is given
EACH = 0.005  # seconds that every prompt is given
MEMORY = 1 << 30  # bytes
LONGEST = 1_000_000  # characters of a rendered prompt


class Renderer:
    """A process that renders; it begins with the first prompt, and ends with this object or this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._runaway: set[str] = set()
        self._lock = threading.Lock()

    def rendered(self, template: str, messages: Any, tokens: Mapping[str, Any]) -> str:
        """Returns the text of a prompt; ValueError where the template refuses, or takes too much time or memory."""
        with self._lock:
            if template not in self._runaway:
                answer = self._asked(json.dumps({"template": template, "messages": messages, "tokens": tokens}))
                if answer is not None:
                    if "text" in answer:
                        return str(answer["text"])
                    raise ValueError(answer["error"])
                self._runaway.add(template)
        raise ValueError(f"it takes more than {SECONDS:g} s, or than {MEMORY >> 20} MiB")

    def _asked(self, question: str) -> dict[str, Any] | None:
        """Returns what the process answers; None where that has ended it."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with suppress(OSError):
            process.stdin.write(f"{question}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if answer.endswith("\n"):
            reply: dict[str, Any] = json.loads(answer)
            return reply
        self._process = None
        _end(process)
        return None

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(SECONDS), str(MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        weakref.finalize(self, _end, process)
        return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def serve(questions: IO[str], answers: IO[str], seconds: float) -> None:
    """Renders what is asked, a line of JSON for each; the alarm of the system ends a process that takes too long."""
    import time

    from transformers.utils.chat_template_utils import render_jinja_template

    left = seconds
    for line in questions:
        asked = json.loads(line)
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
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _limit(memory: int) -> None:
    import resource

    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory)):
        with suppress(OSError, ValueError):  # a lower limit stands already, or the system has none
            resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    _limit(int(sys.argv[2]))
    replies, sys.stdout = sys.stdout, sys.stderr
    serve(sys.stdin, replies, float(sys.argv[1]))
