"""Log-probabilities of a policy whose weights two processes share: FSDP over gloo, on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("sharded_logps.py")


@pytest.mark.slow
def test_fsdp_gives_the_log_probabilities_and_gradients_of_whole_weights(tmp_path: Path) -> None:
    """FSDP 2 by layers, FSDP 2 with an output layer that nothing has gathered, FSDP 1; full and with an adapter."""
    command = [sys.executable, str(SCRIPT)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            output, _ = process.communicate(timeout=300)
            assert process.returncode == 0, output[-3000:]
            assert output.count(": equal") == 12
    finally:
        for process in processes:
            process.kill()
            process.wait()
