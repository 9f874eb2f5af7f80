"""A gold solution is played as the rollout of a policy that says just that, and rewards see the same of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import pytest

from grpo.core.check.gold.solutions import acted
from grpo.core.env.episodes import Action, episodes_of
from grpo.core.env.prompts import encode_episodes
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.rollout.turns.chat import turn_format
from grpo.core.rollout.turns.play import Player, TurnLimits
from grpo.core.rollout.turns.tools import tool_format
from grpo.core.rollout.types import Sampled, SamplingParams
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.host import Host
from grpo.plugins.specs import EnvSpec
from grpo.plugins.types import Completion

pytestmark = pytest.mark.slow

PARAMS = SamplingParams(max_tokens=60, eos_ids=(2,), pad_id=0)
ADD = {"tool": "add", "arguments": {"number": 4}}
FAIL = {"tool": "add", "arguments": {"number": "four"}}


class Desk(gymnasium.Env[str, str]):
    """Waits for the word "done"; a step without a word pays for what the tool has reached."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.sum = 0
        return "Add.", {"row": {"seed": seed}, "unwritable": object()}

    @property
    def tools(self) -> list[Any]:
        return [self.add]

    def add(self, number: int) -> str:
        """Adds to the sum.

        Args:
            number: what to add.
        """
        self.sum += number
        return f"The sum is {self.sum}."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        done = action == "done"
        info = {"success": done, "scores": {"sum": self.sum}, "unwritable": object()}
        return "" if done else "Go on.", 0.25 * self.sum, done, False, info


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(str(embedded_model_path()))


def rollout(env: BoundEnv, tokenizer: Any, actions: Sequence[Action]) -> Completion:
    """Plays the actions through the engine, with a sampler that says them."""
    (episode,) = episodes_of(env, "train", limit=1, unbounded=1)
    tools = tool_format(tokenizer, episode.tools) if episode.tools else None
    lines = [
        action
        if isinstance(action, str)
        else f"<tool_call>{json.dumps({'name': action['tool'], 'arguments': action['arguments']})}</tool_call>"
        for action in actions
    ]

    def say(prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sampled]:
        ids = (*tokenizer(lines.pop(0))["input_ids"], tokenizer.eos_token_id)
        return [Sampled(ids, (0.0,) * len(ids), "stop")]

    limits = TurnLimits(turns=len(actions), tokens=1500, seconds=60.0)
    player = Player(env, tokenizer, turn_format(tokenizer, episode.prompt), limits, tools)
    (played,) = player.play([episode], encode_episodes(tokenizer, [episode]), say, PARAMS)
    return played.completion


@pytest.mark.parametrize(
    ("spec", "actions"),
    [
        ("desk", ["wait", "done"]),
        ("desk", [ADD, ADD, "done"]),
        ("desk", [ADD, FAIL]),
        ("desk", ["done", "more"]),
        ("guess:highest=9,turns=4", ["4", "no number", "99", "1"]),
        ("wordle:turns=3", ["crane", "I say: plumb", "stony"]),
    ],
)
def test_rewards_see_what_they_see_of_a_rollout(spec: str, actions: list[Action], tokenizer: Any) -> None:
    desk = BoundEnv(EnvSpec("desk", 1, Desk, max_turns=9), "")
    env = desk if spec == "desk" else Host.discover().env(spec)
    (episode,) = episodes_of(env, "train", limit=1, unbounded=1)
    (found,), wanted = acted(env, [(episode, actions)]), rollout(env, tokenizer, actions)
    assert isinstance(found, Completion)
    for name in ("text", "prompt", "row", "turns", "info", "env"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert [message["role"] for message in found.messages] == [message["role"] for message in wanted.messages]
    told = ([m["content"] for m in one.messages if m["role"] != "assistant"] for one in (found, wanted))
    assert next(told) == next(told)


def test_an_answer_to_an_environment_that_is_not_stepped_is_its_text() -> None:
    env = Host.discover().env("gsm8k:size=1")
    (episode,) = episodes_of(env, "train", limit=None, unbounded=1)
    (found,) = acted(env, [(episode, episode.gold_actions)])
    assert isinstance(found, Completion)
    assert (found.text, found.turns, found.info) == (episode.demonstration, 1, {})
    assert [message["content"] for message in found.messages] == [found.text]


def test_the_gold_answer_is_played_only_where_there_is_no_demonstration() -> None:
    env = Host.discover().env("gsm8k:size=1")
    (episode,) = episodes_of(env, "train", limit=None, unbounded=1)
    assert replace(episode, gold="4").gold_actions == (episode.demonstration,)
    bare = replace(episode, demonstration=None, gold=("3", "4"))
    assert (bare.actions, bare.gold_actions) == ((), ("3", "4"))
