"""Libraries are quiet, unless their variables say otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ASK = """
from grpo.core.text.quiet import silence_unloaded
silence_unloaded()
from huggingface_hub.utils import logging as hub
hub.get_logger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
hub.get_logger("huggingface_hub.utils._http").error("it is over")
"""


@pytest.mark.parametrize(
    ("asked", "said"), [("", "it is over\n"), ("warning", "Retrying in 1s [Retry 1/5].\nit is over\n")]
)
def test_retries_of_the_hub_are_not_shown_unless_asked_for(asked: str, said: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_VERBOSITY"}
    environment |= {"HF_HUB_VERBOSITY": asked} if asked else {}
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == said


@pytest.mark.slow
def test_a_text_that_is_too_long_is_told_of_by_grpo_alone(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "%s", "answer": "#### 4"}\n' % ("Ann has 3 pens. " * 300) * 20)
    command = [sys.executable, "-m", "grpo", "run", "--env", "gsm8k", "--dataset", str(rows)]
    command += ["--max-prompt-length", "5000", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("grpo: env 'gsm8k'")
    assert done.stderr.count("\n") == 1
