"""The example of docs/kernels.md runs, and the standing of the package is as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import grpo.kernels

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "kernels.md").read_text()


def test_the_example_runs_and_equals_the_reference() -> None:
    namespace: dict[str, object] = {}
    for body in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        exec(compile(body, "docs/kernels.md", "exec"), namespace)
    hidden, weight, target, logp = (namespace[name] for name in ("hidden", "weight", "target", "logp"))
    assert isinstance(logp, torch.Tensor)
    wanted, _ = grpo.kernels.naive_logp(hidden, weight, target, temperature=0.9)  # type: ignore[arg-type]
    torch.testing.assert_close(logp.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_kernels_load_torch_and_nothing_of_the_engine() -> None:
    code = (
        "import sys; from grpo.kernels import *; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'trl', 'vllm', 'datasets', 'pluggy', 'transformers', "
        "'peft', 'accelerate'}), [m for m in sys.modules if m.startswith('grpo.') and 'kernels' not in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]
    assert {"linear_logp", "naive_logp", "Tile"} == set(grpo.kernels.__all__)
