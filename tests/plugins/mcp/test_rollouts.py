"""Whole rollouts with servers: what is told and masked, and that a lost server fails one rollout and no other."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo.core.config.settings import RolloutSettings
from grpo.core.env.episodes import episodes_of
from grpo.core.env.prompts import encode_episodes
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.rollout.players import player_of
from grpo.core.rollout.types import Sampled, SamplingParams
from grpo.plugins.host import Host

pytestmark = [pytest.mark.mcp, pytest.mark.slow]
SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"


def calling(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_a_rollout_calls_its_own_server_and_ends_with_an_answer() -> None:
    server = {"command": [sys.executable, str(SERVER)], "tools": ["count", "crash", "fails"], "seconds": 60}
    env = Host.discover().env({"name": "gsm8k", "mcp": server})
    tokenizer = load_tokenizer(str(embedded_model_path()))
    episodes = episodes_of(env, "train", limit=3, unbounded=3)
    settings = RolloutSettings(max_completion_length=60, max_turns=9, max_rollout_length=1000)
    player = player_of(env, settings, tokenizer, episodes)
    assert player.limits.seconds == 115.0  # the start, the call and a last sign of life, and not rollout.step_timeout
    prompts = encode_episodes(tokenizer, episodes)
    lines = [
        [calling("count"), calling("count") + calling("fails"), "<answer>\n1\n</answer>"],
        [calling("count"), calling("crash")],
        [calling("count", number=1), "no idea"],
    ]

    def policy(asked: Sequence[Sequence[int]], params: SamplingParams) -> list[Sampled]:
        said = []
        for ids in asked:
            [number] = [n for n, prompt in enumerate(prompts) if list(ids[: len(prompt)]) == list(prompt)]
            tokens = (*tokenizer(lines[number].pop(0))["input_ids"], tokenizer.eos_token_id)
            said.append(Sampled(tokens, (-0.5,) * len(tokens), "stop"))
        return said

    first, second, third = player.play(episodes, prompts, policy, SamplingParams(max_tokens=60, eos_ids=(2,), pad_id=0))
    told = [(message["role"], message["content"]) for message in first.completion.messages]
    assert [text for role, text in told if role == "tool"] == ["1", "2", '{"error": "the disk is full"}']
    assert (first.completion.text, first.completion.finish_reason) == ("<answer>\n1\n</answer>", "stop")
    assert first.completion.info["tool_calls"] == 3
    assert 0 < sum(first.sampled) < len(first.sampled)
    assert second.completion.finish_reason == "error"
    assert "tool 'crash' of env 'gsm8k' failed in turn 2: " in second.completion.info["failure"]
    assert (third.completion.text, third.completion.finish_reason) == ("no idea", "stop")
    assert [message["content"] for message in third.completion.messages if message["role"] == "tool"] == ["1"]
