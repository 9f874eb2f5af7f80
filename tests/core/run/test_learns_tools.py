"""A policy learns to use a tool: taught by players of whom half leave it out, it finds out from reward that it pays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

STEPS = 8
ENV = '''
import gymnasium
from grpo import EnvSpec, hookimpl
from grpo.envs.text.spaces import AnyText

class Box(gymnasium.Env):
    """A box to open before one speaks. Half of the players who are shown speak without having opened it."""

    def __init__(self):
        self.observation_space = self.action_space = AnyText()

    @property
    def tools(self):
        return [self.open]

    def open(self) -> str:
        """Open."""
        self.opened = True
        return "1"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.opened = False
        call = [{"tool": "open", "arguments": {}}] if self.np_random.random() < 0.5 else []
        return "A box.", {"demonstration": [*call, "1"]}

    def step(self, action):
        return "", float(self.opened), True, False, {"success": self.opened}

@hookimpl
def grpo_envs():
    return [EnvSpec("box", 1, Box, rewards=("environment",), verifier="environment", max_turns=2)]
'''


@pytest.fixture
def _box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs a distribution with the environment, found by its entry point."""
    (tmp_path / "box_env.py").write_text(ENV)
    info = tmp_path / "box_env-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: box-env\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[grpo]\nbox = box_env\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.nightly
@pytest.mark.usefixtures("_box")
def test_reward_teaches_a_warmed_up_policy_to_call_its_tool(tmp_path: Path) -> None:
    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.planning.decide import make_plan
    from grpo.core.record.browse import read_step
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    tree = {
        "env": "box",
        "out": str(tmp_path / "run"),
        "train": {"steps": STEPS, "prompts_per_step": 1, "group_size": 16, "lr": 1e-4, "warmup_lr": 3e-3}
        | {"warmup_steps": 120},
        "rollout": {"max_completion_length": 48},
        "evaluation": {"size": 0},
    }
    host = Host.discover()
    start(parse_config(tree), host, Silent())
    run_dir = RunDir(tmp_path / "run")

    plan = make_plan(parse_config(tree), host, fresh=False)
    before, after = (begins_a_call(folder, plan) for folder in (run_dir.warmup, run_dir.model))
    assert 0.15 < before < 0.85, "half of the demonstrations call"
    assert after > before + 0.5 * (1 - before)

    rollouts = [one for step in range(1, STEPS + 1) for one in read_step(run_dir, step)[1]]
    callers = [one for one in rollouts if one.info["tool_calls"]]
    others = [one for one in rollouts if not one.info["tool_calls"]]
    assert len(callers) > 5
    assert len(others) > 5
    assert all(one.reward == 1.0 for one in callers if '"error"' not in one.messages[1]["content"])
    assert all(one.reward == 0.0 for one in others)
    call, answer, *_ = next(one for one in callers if one.reward == 1.0).messages
    assert (call["role"], answer) == ("assistant", {"role": "tool", "content": "1"})
    assert json.loads(call["content"].removeprefix("<tool_call>").removesuffix("</tool_call>"))["name"] == "open"
    shares = [row["tools/callers"] for row in read_metrics(run_dir) if row["step"] > 0]
    assert sum(shares) / STEPS == pytest.approx(len(callers) / len(rollouts))


def begins_a_call(folder: Path, plan: Any) -> float:
    """The probability that a policy's answer begins like a call."""
    import torch

    from grpo.core.env.prompts import encode_episodes
    from grpo.core.policy.load import load_policy, load_tokenizer

    tokenizer = load_tokenizer(plan.source.path)
    policy = load_policy(str(folder), "float32", plan.config.lora)
    ids = encode_episodes(tokenizer, plan.train[:1])
    (first, *_) = tokenizer("<tool_call>", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        return float(policy(torch.tensor(ids)).logits[0, -1].softmax(-1)[first])
