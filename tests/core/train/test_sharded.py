"""Log-probabilities of a policy whose weights two processes share: FSDP over gloo, on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import RUN

LOGPS = Path(__file__).parents[2] / "support" / "sharded_logps.py"
LOSSES = Path(__file__).parents[2] / "support" / "sharded_losses.py"


def assert_equal(script: Path, meeting: Path, cases: int, *ways: str) -> None:
    """Runs a script in two processes, each of which says so many times that what it made is equal."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(meeting), *ways],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            output, _ = process.communicate(timeout=RUN)
            assert process.returncode == 0, output[-3000:]
            assert output.count(": equal") == cases
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_fsdp_gives_the_log_probabilities_and_gradients_of_whole_weights(tmp_path: Path) -> None:
    """FSDP 2 by layers, FSDP 2 with an output layer that nothing has gathered, FSDP 1; full and with an adapter."""
    assert_equal(LOGPS, tmp_path / "meeting", 12)


@pytest.mark.slow
def test_two_processes_make_the_loss_and_the_step_of_one(tmp_path: Path) -> None:
    """DDP and FSDP 2, full and with an adapter, with and without a KL term; and weights of 16 bits under FSDP 2."""
    assert_equal(LOSSES, tmp_path / "meeting", 9, "ddp", "fsdp")


@pytest.mark.slow
@pytest.mark.deepspeed
@pytest.mark.parametrize("way", ["zero2", "zero3"])
def test_deepspeed_makes_the_loss_and_the_step_of_one_process(way: str, tmp_path: Path) -> None:
    assert_equal(LOSSES, tmp_path / "meeting", 4, way)
