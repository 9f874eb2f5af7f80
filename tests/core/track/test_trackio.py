"""trackio shows one run for each of ours, which a resumed one continues; it is installed beside the locked packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo.core.track.trackers import plain

HERE = Path(__file__).parent


@pytest.mark.nightly
@pytest.mark.install
def test_trackio_has_one_run_for_each_of_ours(
    tiny_model: Path, beside: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    command = [sys.executable, str(HERE / "trackio_runs.py"), str(tiny_model), str(tmp_path)]
    found = beside(HERE / "trackio_packages.txt")
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, env=found, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "sound"


@pytest.mark.slow  # it imports the trainer
def test_a_rollout_is_shown_as_text_where_a_page_reads_markdown() -> None:
    assert plain("![x](http://example.org) <img>") == r"\!\[x\]\(http://example.org\) \<img\>"
    assert plain("7 + 5 = 12.") == "7 + 5 = 12."
