"""An agent and a chat model of half a billion parameters, in machines of their own: a step trains what was sampled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grpo.core.record.run_dir import RunDir, read_rollouts

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / ".agent-model" / "Qwen2.5-Coder-0.5B-Instruct"
CHORES = ROOT / "examples" / "grpo-env-chores" / "src" / "grpo_env_chores"


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="the session local needs Linux")
@pytest.mark.skipif(not MODEL.is_dir(), reason="the model is missing; in a checkout: make agent-model")
def test_a_step_trains_the_tokens_that_were_sampled_and_no_others(tmp_path: Path) -> None:
    command = f"run --env shell:{CHORES}/tasks --agent python:{CHORES}/agent.py:run --model {MODEL} --lora --steps 1"
    command += " --prompts-per-step 3 --group-size 4 --max-completion-length 64 --set rollout.max_turns=1 --eval-size 0"
    done = subprocess.run(
        [sys.executable, "-m", "grpo", *command.split(), "--out", str(tmp_path / "run")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [metrics] = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    rollouts = read_rollouts(RunDir(tmp_path / "run"), 1)
    assert [each["outcome.environment"] for each in rollouts] == ["score"] * 12
    assert {each["reward"] for each in rollouts} <= {0.0, 1.0}
    assert metrics["agent/calls"] == 1.0
    assert metrics["agent/tokens_untrained"] == 0.0
    assert metrics["agent/tokens_trained"] == sum(len(each["token_ids"]) for each in rollouts) / 12
