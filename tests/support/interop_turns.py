"""Run in an environment that has verifiers: tasks with tools and with several turns, played; "sound" on stdout.

The argument is a folder for runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grpo.core.check import env as check_env
from grpo.core.cli.main import cli
from grpo.core.config.settings import RolloutSettings
from grpo.core.env.episodes import episodes_of
from grpo.core.env.prompts import encode_episodes
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.record.browse import read_step
from grpo.core.record.run_dir import RunDir
from grpo.core.rollout.players import player_of
from grpo.core.rollout.turns.play import Trajectory
from grpo.core.rollout.types import Sampled, SamplingParams
from grpo.plugins.errors import OptionError
from grpo.plugins.host import Host

ROLLOUTS = 16
host = Host.discover()
tokenizer = load_tokenizer(str(embedded_model_path()))


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def played(env: str, row: int, lines: Sequence[Sequence[str]], seconds: float = 30.0) -> list[Trajectory]:
    """Plays one row with scripted turns: a list of them for each rollout, whose number is its first token."""
    bound = host.env(env)
    episode = episodes_of(bound, "train", limit=row + 1, unbounded=1)[row]
    limits = RolloutSettings(max_completion_length=120, max_rollout_length=3000, max_turns=9, step_timeout=seconds)
    player = player_of(bound, limits, tokenizer, [episode])
    assert player is not None
    left = [list(turns) for turns in lines]

    def sample(asked: Sequence[Sequence[int]], params: SamplingParams) -> list[Sampled]:
        said = [(*tokenizer(left[ids[0]].pop(0))["input_ids"], 2) for ids in asked]
        return [Sampled(ids, (-0.5,) * len(ids), "stop") for ids in said]

    (prompt,) = encode_episodes(tokenizer, [episode])
    prompts = [[number, *prompt] for number in range(len(lines))]
    return player.play([episode] * len(lines), prompts, sample, SamplingParams(120, (2,), 0))


def told(one: Trajectory, role: str) -> list[str]:
    return [message["content"] for message in one.completion.messages if message["role"] == role]


# Tools: their state is their rollout's, what they raise is told, a stop ends the episode, the trace holds it all.
turn = "dial_turn"
lines = [[call(turn, number=9) * (n % 4), call(turn, number=5) if n % 2 else "I give up."] for n in range(ROLLOUTS)]
lines = [[text for text in turns if text] for turns in lines]
for number, one in enumerate(played("verifiers:safes-taskset", 5, lines)):
    scores, opened = one.completion.info["scores"], number % 2
    calls = number % 4 + opened
    assert (scores["tries"], scores["calls"], one.completion.info["tool_calls"]) == (calls, calls, calls), scores
    assert (scores["opened"], scores["stopped"], one.completion.info["success"]) == (opened, opened, bool(opened))
    assert scores["turns"] == one.completion.turns == (number % 4 > 0) + 1
    assert (scores["answers"], scores["linked"]) == (number % 4, 1.0), "the last answers are never asked about"
    assert one.completion.finish_reason == "stop"
    assert told(one, "tool") == ["lower"] * (number % 4) + ["It opens."] * opened
wrong = [call("dial_divide", number=0), call(turn, number="x"), call("open"), "Well: " + call(turn, number=5)]
lines = [[call(turn, number=9) * (n % 4 + 1), call("clock_tries"), "so"] for n in range(ROLLOUTS)]
for number, one in enumerate(played("verifiers:safes-taskset", 5, lines)):
    assert told(one, "tool")[-1] == str(number % 4 + 1), "shared tools know whom they answer"
(one,) = played("verifiers:safes-taskset", 5, [wrong])
assert told(one, "tool")[0] == "Error executing tool divide: float division by zero"
assert "the argument 'number' has to be of type integer" in told(one, "tool")[1]
assert "there is no tool 'open'" in told(one, "tool")[2]
assert one.completion.info["scores"]["opened"] == 1.0
budget = [[call(turn, number=n) for n in range(9)]]
(one,) = played("verifiers:safes-taskset", 19 - 2, budget)
assert (one.completion.finish_reason, one.completion.turns) == ("length", 9)
assert (one.completion.info["truncated"], one.completion.info["scores"]["tries"]) == (True, 9.0)
hung, other = played("verifiers:safes-taskset", 5, [[call("clock_wait", seconds=60), "so"], ["so"]], seconds=10.0)
assert "no answer within 10 s" in told(hung, "tool")[0]
assert (hung.completion.finish_reason, other.completion.finish_reason) == ("error", "stop")
assert sys.modules["safes_taskset"].Clock.set_up == 0, "nothing is set up in this process"

# Several turns: what the environment says is the observation; one that fails or hangs ends its own rollout alone.
lines = [["1", {0: "crash", 1: "hang"}.get(n % 8, "9"), str(n % 8), "5", "5"] for n in range(ROLLOUTS)]
for number, one in enumerate(played("verifiers:riddles-taskset", 5, lines, seconds=10.0)):
    info, finish = one.completion.info, one.completion.finish_reason
    if number % 8 < 2:
        assert finish == "error"
        assert ("the riddle is broken", "no answer within 10 s")[number % 8] in info["failure"]
        continue
    right = number % 8 == 5
    hint = "higher" if number % 8 < 5 else "lower"
    assert told(one, "user") == (["higher", "lower"] if right else ["higher", "lower", hint])
    assert info["scores"] == {"turns": 4 - right, "messages": 9 - 2 * right, "ended": 1.0, "found": 1.0}
    assert (info["rewards"][-1], info["success"], finish) == (1.0, True, "stop")
(one,) = played("verifiers:riddles-taskset", 5, [["1", "2", "3", "4"]])
assert (one.completion.info["truncated"], one.completion.info["scores"]["found"]) == (True, 0.0)
assert one.completion.info["scores"]["turns"] == 4.0, "the agent's own limit"

# A task may reword what the policy is told, and stop before it speaks or after it did.
env = host.env("verifiers:manners-taskset").make()
for number, said, ended in ((0, "yes", 1.0), (1, "no", 0.0)):
    _, info = env.reset(options={"row": {"task": number}})
    assert info["prompt"] == [{"role": "user", "content": ("Please: help", "Please: go")[number]}]
    _, reward, terminated, _, info = env.step(said)
    assert (reward, terminated, info["scores"]) == (ended, True, {"kind": ended, "reworded": 1.0})
with pytest.raises(RuntimeError, match="ended before the policy could speak"):
    env.reset(options={"row": {"task": 2}})
env.close()

# What cannot be played here is refused when the tasks are read.
for way, why in {
    "container": "need a container",
    "runtime": "are scored in a runtime .by tested.",
    "setup": "work in a runtime .in setup.",
    "remote": "have tools in another place .Remote at http://localhost:1.",
    "boxed": "in a runtime of the kind docker",
    "beside": "have tools in another place .Remote beside a harness.",
    "reworded": "rewrite what the policy said .in censored.",
    "unasked": "have no prompt",
}.items():
    with pytest.raises(OptionError, match=f"its tasks .*{why}.* run such tasks with verifiers itself"):
        host.env(f"verifiers:refused-taskset:way={way}").rows("train")
moved = {"way": "beside", "task": {"tools": {"colocated": False}}}
assert len(host.env({"name": "verifiers:refused-taskset", "options": moved}).rows("train") or ()) == 2
with pytest.raises(OptionError, match=r"has several agents \(first, second\)"):
    host.env("verifiers:pair-taskset").rows("train")

# The checks pass, and a run and an evaluation go through.
check_env.INSTANCES = ROLLOUTS
for env in ("safes", "riddles"):
    report = check_env.check_env(f"verifiers:{env}-taskset", seconds=180)
    assert [one.severity for one in report.findings] == ["note"], report
envs = ["--env", "verifiers:safes-taskset:as=safes", "--env", "verifiers:riddles-taskset:as=riddles"]
small = "--steps 2 --prompts-per-step 2 --group-size 2 --limit 2 --eval-size 1 --max-completion-length 8 --quiet"
small += f" --set rollout.max_turns=3 --out {sys.argv[1]}/run"
done = CliRunner().invoke(cli, ["run", *envs, *small.split()], catch_exceptions=False)
assert done.exit_code == 0, done.output
_, rollouts = read_step(RunDir(Path(sys.argv[1]) / "run"), 2)
assert [one.outcomes[f"{one.env}.environment"].outcome for one in rollouts] == ["score"] * 4
arguments = ["eval", "--model", f"{sys.argv[1]}/run", "--size", "2", "--json"]
done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
assert {one["env"]: one["accuracy"]["values"] for one in json.loads(done.stdout)} == {"safes": 2, "riddles": 2}
print("sound")
