"""Starts a rollout server on a node of a cluster and returns its address.

The server is `grpo serve-rollouts` in a process of its own. It ends when the process of this object does, since it
watches its stdin.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

from grpo.core.rollout.server.capabilities import TOKEN
from grpo.plugins.errors import RunError

KIND = "grpo.core.rollout.server.placed:PlacedServer"
LOADING = 1800.0  # seconds for a server to load its model
_LOOK = 0.2
_START = """
import os, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
sys.argv[0] = "grpo"
from grpo.core.cli.main import main
main()
"""


class PlacedServer:
    def __init__(self, command: str, token: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the object
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *shlex.split(command)[1:]],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, TOKEN: token},
        )

    def address(self, _: bytes) -> bytes:
        """Returns its URL, once it has loaded. Raises RunError if it ended, or takes longer than `LOADING`."""
        until = time.monotonic() + LOADING
        while time.monotonic() < until:
            self._output.seek(0)
            output = self._output.read().decode(errors="replace")
            if match := re.search(r"^serving .* on (http://\S+)", output, re.MULTILINE):
                return match[1].encode()
            if self._process.poll() is not None:
                lines = [line for line in output.splitlines() if line.strip()]
                raise RunError(f"the rollout server ended: {lines[-1] if lines else 'without a word'}")
            time.sleep(_LOOK)
        raise RunError(f"the rollout server did not load within {LOADING:g} s")

    def close(self, _: bytes = b"") -> bytes:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._output.close()
        return b""
