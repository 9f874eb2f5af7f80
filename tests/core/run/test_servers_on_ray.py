"""A run on a real cluster that starts its own rollout server, with the real vLLM in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from engine_bench import REAL_VLLM
from patience import RUN
from same_metrics import metrics_of

pytestmark = [*REAL_VLLM, pytest.mark.ray, pytest.mark.nightly]


def on_ray(address: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "grpo", "run", *arguments, "--on", "ray", "--ray-address", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_run_starts_its_rollout_server_and_a_new_one_when_it_is_resumed(ray_address: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    quick = ("--env", "gsm8k", "--reward", "proximity", "--set", "evaluation.size=0", "--set", "output.save_every=1")
    said = on_ray(ray_address, *quick, "--steps", "1", "--servers", "1", "--out", str(run))
    assert "1 that samples" in said
    before = json.loads((run / "config.json").read_text())["rollout"]["server_url"]
    on_ray(ray_address, "--resume", str(run), "--steps", "2", "--servers", "1")
    found = metrics_of(run)
    assert [row["step"] for row in found] == [1, 2]
    assert all(row["sync/bytes"] > 0 and row["sampling/sampling_logp_difference/max"] < 1e-3 for row in found)
    assert json.loads((run / "config.json").read_text())["rollout"]["server_url"] != before
