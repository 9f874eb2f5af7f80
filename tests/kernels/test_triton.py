"""The Triton passes: compared with float64 by Triton's interpreter on CPU, and compiled for the GPUs that we mean.

They run where triton is installed, and CI installs it; on a GPU, the tests of `linear_logp` beside this file run on the
same passes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.triton
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "benchmarks" / "results" / "kernels.md"
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
    if (compiler := f"Triton {version('triton')}:") not in PAGE.read_text():
        pytest.skip(f"{compiler[:-1]} allots other registers than the release that the page names")
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu_code.py"), "--check", str(PAGE)],
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_where_triton_cannot_start_the_passes_run_in_torch_and_a_warning_says_why() -> None:
    """So it is on a machine without a GPU, and on one where Triton finds no C compiler for its driver."""
    code = (
        "import warnings; from grpo.kernels import backend\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    print([backend.triton_starts(), backend.triton_starts()], [str(one.message) for one in told])"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[False, False] [")
    assert done.stdout.count("Triton cannot start here") == 1
