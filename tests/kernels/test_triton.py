"""The Triton passes: compared with float64 by Triton's interpreter on CPU, and compiled for the GPUs that we mean.

They run where triton is installed, and CI installs it; on a GPU, the tests of `linear_logp` beside this file run on the
same passes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.triton
ROOT = Path(__file__).resolve().parents[2]
SUITE = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("fused", "jacobian", "logp", "recompute")]


def test_the_suite_passes_on_the_interpreted_passes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *SUITE],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_every_variant_that_is_launched_compiles_for_our_gpus_as_the_page_says() -> None:
    """Without spilled registers, with room for two programs, reading 16 bytes at a time (benchmarks/gpu_code.py)."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu_code.py"), "--check", str(ROOT / "docs" / "kernels.md")],
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
