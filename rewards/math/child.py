"""Serves comparisons in a child process: reads JSON requests and writes JSON replies until the parent hangs up.

The kernel ends it when a comparison passes its processor time or its wall time (alarms with their default action stop
C code too, and an orphan) and refuses it memory beyond `MEMORY` (Linux). How it is started: plugins/child_process.py.

Requests: {"op": "same" | "trl" | "open_r1" | "open_r1_latex", "gold": ..., "text": ..., "seconds": ..., "wall": ...,
          **options}; "seconds" is processor time
Replies:  {"ready": true} or {"error": traceback} once, then {"ok": true | false | null} or {"unreadable": why}
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any

from grpo.plugins.child_process import receive_message, send_message

MEMORY = 2 << 30
"""Bytes of private memory."""


def main(descriptor: int) -> None:
    """Serves until the socket with that file descriptor closes."""
    for alarm in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(alarm, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM, signal.SIGPROF])
    _limit()
    with socket.socket(fileno=descriptor) as channel, suppress(ConnectionError):
        _send(channel, _load())
        while True:
            request = json.loads(receive_message(channel))
            signal.setitimer(signal.ITIMER_PROF, request["seconds"])
            signal.setitimer(signal.ITIMER_REAL, request["wall"])
            reply = answer(request)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _send(channel, reply)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    from grpo.rewards.math import equal as math_equal

    gold, text = request["gold"], request["text"]
    try:
        if request["op"] == "trl":
            return {"ok": math_equal.trl_accuracy(text, gold)}
        if request["op"] == "open_r1":
            return {"ok": math_equal.open_r1_accuracy(text, gold)}
        if request["op"] == "open_r1_latex":
            return {"ok": math_equal.open_r1_latex(text, gold)}
        options = {name: request[name] for name in ("core", "precision", "strict", "relations") if name in request}
        return {"ok": math_equal.same_mathematics(gold, text, **options)}
    except Exception as error:  # of the libraries, on a text that a policy may write
        return {"unreadable": f"the comparison failed ({type(error).__name__})"}


def _load() -> dict[str, Any]:
    try:
        from grpo.rewards.math.equal import same_mathematics

        # What the first comparison imports counts for no answer's time.
        same_mathematics("x+1", r"\boxed{1+x}", precision=6, strict=True, relations=True)
    except ImportError:
        return {"error": traceback.format_exc()}
    return {"ready": True}


def _send(channel: socket.socket, reply: dict[str, Any]) -> None:
    send_message(channel, json.dumps(reply).encode())


def _limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        known = [limit for limit in (soft, hard, MEMORY) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
