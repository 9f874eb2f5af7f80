"""A rollout server that is placed: what it says when it cannot start, and that it ends with whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from patience import wait_for

from grpo.core.rollout.engine.release import vllm_version
from grpo.core.rollout.server.placed import PlacedServer
from grpo.plugins.errors import RunError

pytestmark = pytest.mark.slow


def alive(process: int) -> bool:
    try:
        os.kill(process, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(vllm_version() is not None, reason="vLLM is here, so the server would start")
def test_a_server_that_cannot_start_says_why() -> None:
    server = PlacedServer("grpo serve-rollouts --dtype float32 --port 0", "secret")
    try:
        with pytest.raises(RunError, match=r"the rollout server ended: grpo: vLLM is not installed\. Install it with"):
            server.address(b"")
    finally:
        server.close()


def test_its_process_ends_with_the_one_that_started_it() -> None:
    code = (
        "import os, signal, sys\n"
        "from grpo.core.rollout.server import placed\n"
        "placed._START = placed._START.replace('main()\\n', 'import time; time.sleep(600)')\n"
        "server = placed.PlacedServer('grpo serve-rollouts', 'secret')\n"
        "print(server._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    process = int(done.stdout)
    assert wait_for(lambda: not alive(process))
