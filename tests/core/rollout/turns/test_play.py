"""Rollouts of several turns: tokens in and out, budgets, failures, log-probabilities of a plain forward pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy
import pytest
import torch
from patience import PATIENCE, EnvClock

from grpo.core.env.episodes import Episode, episodes_of
from grpo.core.env.prompts import encode_prompts
from grpo.core.policy.load import load_model, load_tokenizer
from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.turns.chat import turn_format
from grpo.core.rollout.turns.play import Player, Trajectory, TurnLimits
from grpo.core.rollout.types import Sampled, SamplingParams
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.specs import EnvSpec

PARAMS = SamplingParams(max_tokens=6, eos_ids=(2,), pad_id=0)


class Counting(gymnasium.Env[str, str]):
    """Counts up to the seed plus 2; what it does at a turn, when the seed is 1, is named by `bad`, turn to fault."""

    clock: EnvClock

    def __init__(self, **bad: str) -> None:
        self.bad = bad
        self.turn = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.goal = (seed or 0) + 2
        if self.bad.get("turn0") == "moves" and seed == 1:
            self.goal = time.monotonic_ns()
        row: dict[str, Any] = {"goal": self.goal}
        if self.bad.get("turn0") == "hides" and seed == 1:
            row["secret"] = time.monotonic_ns()
        return f"Count to {self.goal}.", {"row": row, "demonstration": ["1", "2"]}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        fault = self.bad.get(f"turn{self.turn}") if self.goal == 3 else None
        if fault == "raises":
            raise RuntimeError("it fell over")
        if fault == "hangs":
            self.clock.hang()
        reward = float("nan") if fault == "nan" else 0.5
        observation: Any = 7 if fault == "number" else f"That was {self.turn}."
        info = {"success": self.turn == self.goal, "thing": object(), "scores": {"turns": self.turn}}
        return observation, reward, self.turn == self.goal, False, info


def env_of(**bad: str) -> BoundEnv:
    return BoundEnv(EnvSpec("counting", 1, lambda: Counting(**bad), max_turns=9), "some-dist")


@pytest.fixture
def tokenizer(tiny_model: Path) -> Any:
    return load_tokenizer(str(tiny_model))


def player(env: BoundEnv, tokenizer: Any, **limits: Any) -> tuple[Player, Sequence[Episode]]:
    episodes = episodes_of(env, "train", limit=3, unbounded=3)
    chosen = {"turns": 9, "tokens": 900, "seconds": PATIENCE, **limits}
    return Player(env, tokenizer, turn_format(tokenizer, episodes[0].prompt), TurnLimits(**chosen)), episodes


class Script:
    """Samples "7" and the end token for everybody, and remembers what it was asked."""

    def __init__(self, tokenizer: Any, *, ends: bool = True) -> None:
        (self.seven,) = tokenizer("7")["input_ids"]
        self.ends = ends
        self.asked: list[list[list[int]]] = []

    def __call__(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sampled]:
        self.asked.append([list(prompt) for prompt in prompts])
        if not self.ends:
            return [Sampled((self.seven,) * params.max_tokens, (-0.5,) * params.max_tokens, "length")] * len(prompts)
        return [Sampled((self.seven, 2), (-0.5, -0.25), "stop")] * len(prompts)


def play(of: tuple[Player, Sequence[Episode]], sampler: Any) -> list[Trajectory]:
    prompts = encode_prompts(of[0].tokenizer, [episode.prompt for episode in of[1]])
    return of[0].play(of[1], prompts, sampler, PARAMS)


def test_rollouts_advance_together_and_each_ends_by_itself(tokenizer: Any) -> None:
    script = Script(tokenizer)
    found = play(player(env_of(), tokenizer), script)
    assert [len(asked) for asked in script.asked] == [3, 3, 2, 1], "goals of 2, 3 and 4"
    assert [one.completion.turns for one in found] == [2, 3, 4]
    last = found[2].completion
    assert last.info["rewards"] == [0.5] * 4
    assert (last.info["success"], last.info["terminated"], last.finish_reason) == (True, True, "stop")
    assert last.info["scores"] == {"turns": 4}
    assert "thing" not in last.info, "what JSON cannot hold stays with the environment"
    assert [message["role"] for message in last.messages] == ["assistant", "user"] * 4
    assert (last.text, last.row) == ("7", {"goal": 4})
    assert last.token_ids == (script.seven, 2) * 4


def test_what_was_sampled_stays_and_everything_else_is_masked(tokenizer: Any) -> None:
    script = Script(tokenizer)
    of = player(env_of(), tokenizer)
    found = play(of, script)
    for one in found:
        chosen = [token for token, mine in zip(one.token_ids, one.sampled, strict=True) if mine]
        assert chosen == [script.seven, 2] * one.completion.turns
        assert all((logprob == 0.0) != mine for logprob, mine in zip(one.logprobs, one.sampled, strict=True))
        assert one.sampled[-1], "a rollout ends with what the policy said"
    prompt = encode_prompts(tokenizer, [of[1][2].prompt])[0]
    seen = script.asked[3][0]
    assert seen == prompt + list(found[2].token_ids)[: len(seen) - len(prompt)], "the context only grows"
    assert tokenizer.decode(seen).count("That was") == 3


def test_budgets_of_turns_and_tokens_cut_a_rollout_between_turns(tokenizer: Any) -> None:
    cut = play(player(env_of(), tokenizer, turns=2), Script(tokenizer))
    assert [one.completion.turns for one in cut] == [2, 2, 2]
    assert [one.completion.finish_reason for one in cut] == ["stop", "length", "length"]
    short = play(player(env_of(), tokenizer, tokens=PARAMS.max_tokens + 1), Script(tokenizer))
    assert [one.completion.turns for one in short] == [1, 1, 1]
    assert all(len(one.token_ids) <= PARAMS.max_tokens and one.completion.finish_reason == "length" for one in short)


def test_a_turn_that_is_cut_is_an_action_and_a_rollout_that_its_environment_ended_is_not_cut(tokenizer: Any) -> None:
    found = play(player(env_of(), tokenizer), Script(tokenizer, ends=False))
    assert [one.completion.turns for one in found] == [2, 3, 4]
    assert {one.completion.finish_reason for one in found} == {"stop"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "why", "turns"),
    [
        ({"turn2": "raises"}, "failed in turn 2: RuntimeError: it fell over", 2),
        ({"turn1": "hangs"}, "failed in turn 1: TimeoutError: no answer within 60 s", 1),
        ({"turn2": "nan"}, "the reward is nan", 2),
        ({"turn1": "number"}, "the observation is an int, not text", 1),
        (
            {"turn0": "moves"},
            "could not start: ValueError: reset with the same seed and options gave another prompt",
            0,
        ),
        ({"turn0": "hides"}, "gave another row than before", 0),
    ],
)
def test_an_environment_fails_its_own_rollout(
    tokenizer: Any, bad: dict[str, str], why: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "clock", EnvClock(monkeypatch), raising=False)
    found = play(player(env_of(**bad), tokenizer), Script(tokenizer))
    assert [one.completion.finish_reason for one in found] == ["stop", "error", "stop"]
    failed = found[1].completion
    assert why in failed.info["failure"]
    assert (failed.turns, found[2].completion.turns) == (turns, 4)
    if turns == 0:
        assert (found[1].token_ids, found[1].sampled) == ((2,), (False,))


def test_members_of_a_group_start_alike_and_a_rollout_is_the_same_again(tokenizer: Any, tiny_model: Path) -> None:
    model = load_model(str(tiny_model), "float32")
    of, episodes = player(env_of(), tokenizer)
    group = [episodes[1]] * 4
    prompts = encode_prompts(tokenizer, [episode.prompt for episode in group])

    def once() -> list[Trajectory]:
        torch.manual_seed(5)
        return of.play(group, prompts, lambda asked, params: sample(model, asked, params), PARAMS)

    first, second = once(), once()
    assert first == second
    assert len({one.token_ids for one in first}) > 1


def test_a_plain_forward_pass_gives_the_recorded_log_probabilities(tokenizer: Any, tiny_model: Path) -> None:
    model = load_model(str(tiny_model), "float32")
    of, episodes = player(env_of(), tokenizer)
    prompts = encode_prompts(tokenizer, [episode.prompt for episode in episodes])
    torch.manual_seed(3)
    found = of.play(episodes, prompts, lambda asked, params: sample(model, asked, params), PARAMS)
    for prompt, one in zip(prompts, found, strict=True):
        ids = torch.tensor([prompt + list(one.token_ids)])
        with torch.no_grad():
            logps = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        computed = logps.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        mask = torch.tensor(one.sampled)
        torch.testing.assert_close(computed[mask], torch.tensor(one.logprobs)[mask], rtol=0, atol=2e-5)
        assert not mask.all()


class Greedy(gymnasium.Env[str, str]):
    """Takes its answers out of the row that it is given, whose columns cannot be compared by == alone."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        row = (options or {})["row"]
        self.answer = row["answers"].pop()
        return f"What is it? {len(row['answers'])} left.", {"row": {**row, "nan": float("nan")}}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", float(self.answer == "b"), True, False, {}


def test_what_an_environment_writes_into_its_row_is_not_seen_by_other_members(tokenizer: Any) -> None:
    rows = [{"answers": ["a", "b"], "grid": numpy.zeros(2)}]
    spec = EnvSpec("greedy", 1, Greedy, dataset=lambda split: rows, max_turns=2)
    of, episodes = player(BoundEnv(spec, "some-dist"), tokenizer)
    found = play((of, [*episodes] * 4), Script(tokenizer))
    assert [one.completion.info["rewards"] for one in found] == [[1.0]] * 4
    assert rows[0]["answers"] == ["a", "b"]
