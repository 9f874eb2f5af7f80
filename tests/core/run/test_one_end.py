"""Trouble of one process in the middle of a step, where the others wait for its gradients: one end, one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import sharded_command
import troubled_command

pytestmark = pytest.mark.slow

WORDS = {
    "raises": "grpo: process 1 of 2: ValueError: a kernel failed",
    "fills_its_memory": "grpo: process 1 of 2: the GPU's memory is full: CUDA out of memory.",
    "fills_the_disk": ": cannot write",
    "is_told_to_stop": "Continue with: grpo run --resume",
    "is_killed": "grpo: process 1 of 2 ended without a message: it was killed",
    "hangs": "Nothing was heard of process 1 of 2",
}
WAYS: Mapping[str, Mapping[str, str]] = {"ddp": {}, "fsdp": sharded_command.FSDP}
KINDS = [
    pytest.param(trouble, way, marks=() if (trouble, way) == ("raises", "fsdp") else pytest.mark.nightly)
    for trouble in WORDS
    for way in WAYS
]


@pytest.mark.parametrize(("trouble", "way"), KINDS)
def test_trouble_of_one_process_ends_all_with_one_line(
    trouble: str, way: str, tiny_model: Path, vowels: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    limit = 60 if trouble == "hangs" else 3600  # that processes wait for each other: beyond the patience of this test
    text = (
        f"run --env gsm8k:dataset=embedded --reward {vowels} --model {tiny_model} --steps 400 --save-every 4 "
        f"--max-completion-length 8 --prompts-per-step 2 --group-size 4 --eval-size 0 --out {run} "
        f"--micro-batch-size 4 --set failures.wait_limit={limit}"
    )
    variables = {**WAYS[way], "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "3"}  # until the launcher kills what does not end
    program = (troubled_command.__file__, trouble)
    said = sharded_command.run(text.split(), variables, program, code=1)
    ours = "\n".join(line for line in said.splitlines() if not re.match(r"[WE]\d{4} ", line))
    assert ours.count(WORDS[trouble]) == 1, said
    assert ours.count("grpo: ") == (0 if trouble == "is_told_to_stop" else 1), said
    status = json.loads((run / "state.json").read_text())["status"]
    assert status == ("interrupted" if trouble == "is_told_to_stop" else "failed")
    assert not (run / "model").exists()
