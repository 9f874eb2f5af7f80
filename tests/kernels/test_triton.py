"""The Triton passes: compared with float64 by Triton's interpreter on CPU, and compiled for the GPUs that we mean.

They run where triton is installed, and CI installs it; on a GPU, the tests of `linear_logp` beside this file run on the
same passes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.triton
SUITE = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("fused", "jacobian", "logp", "recompute")]


@pytest.fixture(autouse=True)
def triton_installed() -> None:
    """Skips the test where triton is missing; fails it when GRPO_REQUIRE_TRITON is set."""
    if importlib.util.find_spec("triton") is None:
        message = "triton is missing; it comes with CUDA builds of torch and with vLLM (in a checkout: make vllm)"
        if os.environ.get("GRPO_REQUIRE_TRITON"):
            pytest.fail(message)
        pytest.skip(message)


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


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("capability", [80, 90])
def test_the_passes_compile_for_a_gpu(capability: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import compile as build
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from grpo.kernels import triton_folds

    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("interpreted kernels are not compiled")
    scalars = {"width": "i32", "first": "i32", "softcap": "fp32", "inv_t": "fp32", "boost": "fp32", "taken_out": "fp32"}
    for kernel in (triton_folds._fold_kernel, triton_folds._gradient_kernel):
        constants = {"is_capped": True, "with_entropy": True, "with_weights": True, "block": 1024}
        constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
        types = {name: "*fp32" for name in kernel.arg_names if name.endswith("_ptr")}
        types |= {name: kind for name, kind in scalars.items() if name in kernel.arg_names}
        types |= {"out_ptr": f"*{dtype}", "target_ptr": "*i64"} | dict.fromkeys(constants, "constexpr")
        source = ASTSource(fn=kernel, signature=types, constexprs=constants)
        assert build(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]
