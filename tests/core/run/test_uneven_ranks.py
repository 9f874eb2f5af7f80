"""Runs of ZeRO-3 in which one process has something to sample and the other has nothing.

DeepSpeed gathers weights pass by pass, so a pass that one process makes alone waits for ever. Rollouts, refilled
completions, replaced groups and held-out episodes give each process passes of its own: as many as its texts are long.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sharded_command

from grpo.core.record.run_dir import RunDir, open_run_dir, read_json, read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.deepspeed]

FLAKY = """
def flaky(completion):
    if sum(map(ord, completion)) % 5 == 0:
        raise ValueError("one of five")
    return len(completion) % 3
"""
# Every setting that gives a process more to sample than another, or passes of another kind.
COMMON = """
[rollout]
max_completion_length = 16
refill = 2
dynamic = 2
batch_size = 3
[train]
steps = 2
prompts_per_step = 2
group_size = 4
micro_batch_size = 2
[loss]
beta = 0.05
num_iterations = 2
[evaluation]
size = 1
every = 1
[output]
save_every = 2
"""
FULL = 'env = "gsm8k"\ndataset = "embedded"\nrewards = ["{reward}"]\nsampler = "curriculum"\n' + COMMON
ADAPTER = (
    'rewards = ["{reward}"]\n[lora]\nenabled = true\nrank = 4\n[[env]]\nname = "gsm8k"\n'
    'options = {{ dataset = "embedded" }}\n[[env]]\nname = "guess"\n' + COMMON
)


@pytest.mark.parametrize(
    ("text", "resumed"),
    [
        pytest.param(FULL, False, id="full"),
        pytest.param(FULL, True, id="full-resumed", marks=pytest.mark.nightly),
        pytest.param(ADAPTER, True, id="adapter-resumed", marks=pytest.mark.nightly),
    ],
)
def test_no_process_waits_for_a_pass_that_another_one_does_not_make(text: str, resumed: bool, tmp_path: Path) -> None:
    reward, config, run = tmp_path / "flaky.py", tmp_path / "run.toml", tmp_path / "run"
    reward.write_text(FLAKY)
    config.write_text(text.format(reward=f"{reward}:flaky"))
    zero3 = sharded_command.zero(3, tmp_path)
    sharded_command.run(["run", "--config", str(config), "--out", str(run)], zero3)
    if resumed:
        sharded_command.run(["run", "--resume", str(run), "--steps", "4"], zero3)
    assert (read_json(RunDir(run).state) or {})["status"] == "done"
    rows = read_metrics(open_run_dir(run))
    assert [row["step"] for row in rows] == [0, 1, 2, *([3, 4] if resumed else [])]
    assert any(row.get("sampling/wasted", 0) > 0 for row in rows), "nothing was sampled again or replaced"
