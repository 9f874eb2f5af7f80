"""Rollouts in which the policy calls tools: who is stepped, what is told, what is masked, what ends a rollout."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

import gymnasium
import pytest
import torch
from patience import PATIENCE, EnvClock

from grpo.core.env.episodes import Episode, episodes_of
from grpo.core.env.prompts import encode_episodes
from grpo.core.env.threads import Raised
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_model, load_tokenizer
from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.players import player_of
from grpo.core.rollout.turns.chat import turn_format
from grpo.core.rollout.turns.play import Player, Trajectory, TurnLimits
from grpo.core.rollout.types import Sampled, SamplingParams
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import PluginError, SandboxUnavailable, UsageError
from grpo.plugins.specs import EnvSpec

PARAMS = SamplingParams(max_tokens=60, eos_ids=(2,), pad_id=0)


class Desk(gymnasium.Env[str, str]):
    """Waits for the word "done"; its tool adds to a sum that its thread alone may touch."""

    clock: EnvClock

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.sum, self.steps = 0, 0
        return f"Question {seed}.", {"demonstration": [{"tool": "add", "arguments": {"number": 4}}, "done"]}

    @property
    def tools(self) -> list[Any]:
        return [self.add, self.fail]

    def add(self, number: int) -> str:
        """Adds to the sum.

        Args:
            number: what to add.
        """
        self.sum += number
        return f"The sum is {self.sum}."

    def fail(self, how: str) -> str:
        """Fails.

        Args:
            how: in which way.
        """
        if how == "hangs":
            self.clock.hang()
        raise SandboxUnavailable("no room") if how == "machine" else sqlite3.OperationalError("locked")

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        done = action == "done"
        paid = float(done) if action else 0.5
        return f"Step {self.steps}, sum {self.sum}.", paid, done, False, {"success": done, "sum": self.sum}


def bound(kind: type[Desk] = Desk, **fields: Any) -> BoundEnv:
    return BoundEnv(EnvSpec("desk", 1, kind, **{"max_turns": 9, **fields}), "some-dist")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(str(embedded_model_path()))


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Script:
    """Says its lines, one row for each rollout; a rollout that is asked again says its next one."""

    def __init__(self, tokenizer: Any, *lines: list[str]) -> None:
        self.tokenizer = tokenizer
        self.lines = {number: list(row) for number, row in enumerate(lines)}
        self.known: dict[int, list[int]] = {}

    def __call__(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sampled]:
        if not self.known:
            self.known = {number: list(prompt) for number, prompt in enumerate(prompts)}
        found = []
        for prompt in prompts:
            (number,) = [n for n, start in self.known.items() if list(prompt[: len(start)]) == start]
            ids = (*self.tokenizer(self.lines[number].pop(0))["input_ids"], self.tokenizer.eos_token_id)
            found.append(Sampled(ids, (-0.5,) * len(ids), "stop"))
        return found


def play(tokenizer: Any, *lines: list[str], env: type[Desk] = Desk, **limits: Any) -> list[Trajectory]:
    desk = bound(env)
    episodes = episodes_of(desk, "train", limit=len(lines), unbounded=1)
    chosen = {"turns": 9, "tokens": 1500, "seconds": PATIENCE, **limits}
    formed = player_of_desk(desk, tokenizer, episodes)
    player = Player(desk, tokenizer, turn_format(tokenizer, episodes[0].prompt), TurnLimits(**chosen), formed.tools)
    return player.play(episodes, encode_episodes(tokenizer, episodes), Script(tokenizer, *lines), PARAMS)


def player_of_desk(env: BoundEnv, tokenizer: Any, episodes: Sequence[Episode]) -> Player:
    from grpo.core.config.settings import RolloutSettings

    found = player_of(env, RolloutSettings(max_completion_length=60), tokenizer, episodes)
    assert found is not None
    return found


def told(one: Trajectory) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in one.completion.messages]


def test_a_call_is_answered_and_does_not_step_the_environment(tokenizer: Any) -> None:
    lines = ["done"], [call("add", number=3), call("add", number=4) + call("add", number=1), "what?", "done"]
    first, second = play(tokenizer, *lines)
    assert told(first) == [("assistant", "done"), ("user", "Step 1, sum 0.")]
    assert told(second)[1:] == [
        ("tool", "The sum is 3."),
        ("assistant", lines[1][1]),
        ("tool", "The sum is 7."),
        ("tool", "The sum is 8."),
        ("assistant", "what?"),
        ("user", "Step 1, sum 8."),
        ("assistant", "done"),
        ("user", "Step 2, sum 8."),
    ]
    assert (second.completion.turns, second.completion.info["rewards"]) == (4, [0.0, 0.0, 0.0, 1.0])
    assert (first.completion.info["tool_calls"], second.completion.info["tool_calls"]) == (0, 3)


def test_what_tools_answer_is_in_the_context_and_masked(tokenizer: Any) -> None:
    (one,) = play(tokenizer, [call("add", number=3), "done"])
    chosen = [token for token, mine in zip(one.token_ids, one.sampled, strict=True) if mine]
    assert tokenizer.decode(chosen) == call("add", number=3) + "<|im_end|>done<|im_end|>"
    seen = "<|im_end|>\n<|im_start|>tool\nThe sum is 3.<|im_end|>\n<|im_start|>assistant\ndone<|im_end|>"
    assert tokenizer.decode(list(one.token_ids)) == call("add", number=3) + seen
    assert all((logprob == 0.0) != mine for logprob, mine in zip(one.logprobs, one.sampled, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (call("fail", how="raises"), "OperationalError: locked"),
        (call("fail", how="hangs"), "no answer within 60 s"),
        (call("add"), "missing 1 required positional argument"),
        (call("reset", seed=1), "there is no tool 'reset'"),
    ],
)
def test_a_call_that_fails_is_told_and_the_rollout_goes_on(
    tokenizer: Any, asked: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Desk, "clock", EnvClock(monkeypatch), raising=False)
    first, other = play(tokenizer, [asked, call("add", number=2), "done"], ["done"])
    assert why in json.loads(told(first)[1][1])["error"]
    assert told(first)[3] == ("tool", "The sum is 2.")
    assert [one.completion.finish_reason for one in (first, other)] == ["stop", "stop"]


def test_trouble_of_the_machine_fails_the_rollout_and_no_other(tokenizer: Any) -> None:
    first, other = play(tokenizer, [call("add", number=1) + call("fail", how="machine")], ["done"])
    assert [one.completion.finish_reason for one in (first, other)] == ["error", "stop"]
    assert "tool 'fail' of env 'desk' failed in turn 1: SandboxUnavailable" in first.completion.info["failure"]


def test_budgets_end_a_rollout_that_only_calls(tokenizer: Any) -> None:
    lines = [[call("add", number=n) for n in range(9)]]
    for name, limit in (("turns", 3), ("tokens", 200)):
        limits: dict[str, Any] = {name: limit}
        (one,) = play(tokenizer, *lines, **limits)
        assert (one.completion.finish_reason, one.completion.turns) == ("length", 3), limits
        assert one.completion.info["sum"] == 0 + 1 + 2, "the environment is asked what the calls came to"
        assert one.completion.info["rewards"] == [0.0, 0.0, 0.5]
        assert one.completion.text == "", "a call is not an answer, whatever numbers it holds"
        assert one.sampled[-1]


class Counter(Desk):
    """Ends with the call that makes the sum 7, wants to know when it is cut, and describes its tool itself."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.heard: list[dict[str, Any]] = []
        return super().reset(seed=seed, options=options)

    @property
    def tools(self) -> list[Any]:
        def add(number: int) -> str:
            return self.add(number)

        properties = {"number": {"type": "integer", "description": "whatever"}}
        described = {
            "name": "add",
            "description": "Counts.",
            "parameters": {"type": "object", "properties": properties},
        }
        add.json_schema = {"type": "function", "function": described}  # type: ignore[attr-defined]
        return [add]

    def tools_used(self, messages: list[dict[str, Any]]) -> bool:
        self.heard += messages
        return self.sum == 7

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        heard = [(one["role"], one["content"], len(one.get("tool_calls", ()))) for one in self.heard]
        return "Go on.", 0.25, action != "again", False, {"heard": heard, "with": action}

    def cut(self) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 0.75, False, True, {"sum": self.sum}


def test_an_environment_hears_of_calls_and_may_end_with_them(tokenizer: Any) -> None:
    lines = [["Well. " + call("add", number=3) + call("add", number=4), "never said"], [call("add", number=3), "so"]]
    first, second = play(tokenizer, *lines, env=Counter)
    assert (first.completion.turns, first.completion.finish_reason, first.completion.text) == (1, "stop", "")
    assert first.completion.info["heard"] == [
        ("assistant", "Well.", 2),
        ("tool", "The sum is 3.", 0),
        ("tool", "The sum is 7.", 0),
    ]
    assert (first.completion.info["with"], first.completion.info["rewards"]) == ("", [0.25])
    assert (second.completion.info["with"], second.completion.info["rewards"]) == ("so", [0.0, 0.25])
    assert first.sampled[-1], "nothing stands after the last sampled token"


def test_an_environment_that_wants_to_know_is_told_when_a_budget_cuts_it(tokenizer: Any) -> None:
    lines = [["again"] * 3, ["again", "again", call("add", number=4)], ["so"]]
    called, asked, done = (one.completion for one in play(tokenizer, *lines, env=Counter, turns=3))
    for one, total in ((called, 0), (asked, 4)):
        assert (one.finish_reason, one.turns, one.info["truncated"], one.info["sum"]) == ("length", 3, True, total)
    assert called.info["rewards"] == [0.25, 0.25, 1.0]
    assert asked.info["rewards"] == [0.25, 0.25, 0.75]
    assert (done.finish_reason, done.info["rewards"]) == ("stop", [0.25])


def test_a_plain_forward_pass_gives_the_log_probabilities_after_an_answer(tokenizer: Any) -> None:
    env = bound()
    model = load_model(str(embedded_model_path()), "float32")
    episodes = episodes_of(env, "train", limit=2, unbounded=2)
    player = player_of_desk(env, tokenizer, episodes)
    prompts = encode_episodes(tokenizer, episodes)
    script = Script(tokenizer, [call("add", number=3)], [call("add", number=77) + call("add", number=1)])

    def sampled(asked: Sequence[Sequence[int]], params: SamplingParams) -> list[Sampled]:
        return script(asked, params) if any(script.lines.values()) else sample(model, asked, params)

    torch.manual_seed(3)
    limits = TurnLimits(turns=2, tokens=900, seconds=PATIENCE)
    found = Player(env, tokenizer, player.form, limits, player.tools).play(episodes, prompts, sampled, PARAMS)
    for prompt, one in zip(prompts, found, strict=True):
        ids = torch.tensor([prompt + list(one.token_ids)])
        with torch.no_grad():
            logps = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        computed = logps.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        free = torch.tensor(one.sampled) & (torch.tensor(one.logprobs) != -0.5)
        assert free.sum() > 3
        torch.testing.assert_close(computed[free], torch.tensor(one.logprobs)[free], rtol=0, atol=2e-5)


def test_a_demonstration_calls_tools_in_the_form_of_the_template(tokenizer: Any) -> None:
    from grpo.core.train.sft.data import demonstrated

    env = bound()
    (episode,) = episodes_of(env, "train", limit=1, unbounded=1)
    desk, limits = player_of_desk(env, tokenizer, [episode]), TurnLimits(turns=2, tokens=900, seconds=PATIENCE)
    (found,) = demonstrated(Player(env, tokenizer, desk.form, limits, desk.tools), [episode], PARAMS.max_tokens)
    assert not isinstance(found, Raised)
    ids, learned = found
    said = tokenizer.decode([token for token, mine in zip(ids, learned, strict=True) if mine])
    assert said == call("add", number=4) + "<|im_end|>done<|im_end|>"
    assert "tool\nThe sum is 4.<|im_end|>\n" in tokenizer.decode(ids)


def test_tools_are_refused_where_they_cannot_be_used(tokenizer: Any) -> None:
    from grpo.core.policy.load import PLAIN_CHAT_TEMPLATE

    env = bound(max_turns=1, scores_itself=True)
    episodes = episodes_of(env, "train", limit=1, unbounded=1)
    with pytest.raises(PluginError, match="max_turns to 2 or more"):
        player_of_desk(env, tokenizer, episodes)
    plain = load_tokenizer(str(embedded_model_path()))
    plain.chat_template = PLAIN_CHAT_TEMPLATE
    with pytest.raises(UsageError, match="does not show tools to the policy"):
        player_of_desk(bound(), plain, episodes)
