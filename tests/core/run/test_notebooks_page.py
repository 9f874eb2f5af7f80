"""docs/notebooks.md and the example of docs/configuration.md are true: their blocks run as one script each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("page", "says"),
    [
        pytest.param("notebooks.md", "done after step 4", marks=pytest.mark.nightly),
        ("configuration.md", "runs/notebook "),
    ],
)
def test_the_python_of_the_page_runs(page: str, says: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert blocks
    script = "\n".join(blocks).replace("steps=60", "steps=2, prompts_per_step=2, eval_size=4")
    (tmp_path / "page.py").write_text(script, encoding="utf-8")
    # TRL imports vLLM where it is installed, and that uses what torch has deprecated.
    command = [sys.executable, "-W", "error", "-W", "ignore:`torch.jit.script_method`:DeprecationWarning", "page.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
