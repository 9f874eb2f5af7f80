"""Sessions under load: many at once, a quarter hostile, kills at random; no wrong score, and nothing is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LOAD = Path(__file__).resolve().parents[3] / "benchmarks" / "session_load.py"


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="the session 'local' needs Linux")
def test_no_honest_episode_is_scored_wrong_under_load_and_nothing_is_left(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, LOAD, "--json", tmp_path / "figures.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert (figures["wrong"], figures["left"]) == ([], {})
    assert {"session", "server", "launcher"} <= set(figures["kills"])
    assert figures["honest"]["right"] > figures["honest"].get("failed", 0)
    assert figures["growth of this process"] < 256 * 2**20
    assert figures["memory of all sessions"] < 4 * 2**30
