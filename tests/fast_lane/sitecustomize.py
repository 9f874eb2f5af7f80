"""The guard of the fast lane: a test in it loads no trainer and reaches no other machine, in no Python that it starts.

In: what the interpreter reports of itself to an audit hook. Out: an error at the place where it happens, and a line in
`broken`, because code under test may swallow the error. Python imports a module of this name by itself when it starts;
`tests/conftest.py` puts this folder in front of the search path of the processes that the tests start. A process that
ignores PYTHONPATH is not watched.
"""

from __future__ import annotations

import sys
from typing import Any

broken: list[str] = []


def _on_this_machine(host: Any) -> bool:
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    return name in (None, "", "localhost", "::1", "0.0.0.0", "::") or str(name).startswith("127.")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "import" and arguments[0] == "trl":
        what = "loads trl, and with it the trainer"
    elif event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        if _on_this_machine(arguments[1][0]):
            return
        what = f"connects to {arguments[1][0]}"
    elif event == "socket.getaddrinfo" and not _on_this_machine(arguments[0]):
        what = f"asks for the address of {arguments[0]!r}"
    else:
        return
    broken.append(what)
    raise RuntimeError(f"this test {what}, which a test of the fast lane does not; mark it: @pytest.mark.slow")


sys.addaudithook(_watch)
