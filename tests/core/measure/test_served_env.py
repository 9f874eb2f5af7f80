"""An environment that a client plays: tasks, turns, tools, the score at the end, and what has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium
import pytest

from grpo.core.env.episodes import episodes_of
from grpo.core.measure.served_env import ServedEnv, refuse_clashes
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import TransientError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.specs import EnvSpec

pytestmark = pytest.mark.slow
HOST = Host.discover()


@contextmanager
def served(env: str | BoundEnv, *rewards: str) -> Iterator[ServedEnv]:
    bound = HOST.env(env) if isinstance(env, str) else env
    episodes = episodes_of(bound, "train", limit=2, unbounded=2)
    chosen = HOST.rewards(rewards) if rewards else HOST.default_rewards(bound)
    with ServedEnv(bound, episodes, chosen, HOST.default_verifier(bound), 60.0) as client:
        yield client


def test_one_answer_is_scored_and_the_next_task_follows() -> None:
    with served("gsm8k", "gsm8k.correctness") as client:
        assert client.submit("1").error
        first = client.reset().text
        right = client.submit("<answer>\n17\n</answer>")
        assert right.data == {"score": 2.0, "correct": True, "rewards": {"gsm8k.correctness": 2.0}}
        assert right.text.startswith("The task is over. Score: 2, correct")
        assert client.submit("1").text == "no task is open: call reset first"
        assert first != client.reset().text
        assert client.reset().text == first  # after the last comes the first
        assert client.reset(2).text == "there is no task 2: they are numbered from 0 to 1"
        assert client.submit("no idea").data["correct"] is False


def test_moves_are_answered_until_the_game_is_over() -> None:
    with served("guess") as client:
        client.reset(0)
        assert client.submit("8").text.startswith("It is")
        answers = [client.submit("0") for _ in range(3)]
        assert answers[-1].data["score"] == 0.0
        assert [bool(answer.data) for answer in answers] == [False, False, True]


class _Desk(gymnasium.Env[str, str]):
    observation_space = action_space = gymnasium.spaces.Text(1000)

    @property
    def tools(self) -> list[Any]:
        return [self.look]

    def look(self, where: str) -> str:
        """Looks.

        Args:
            where: a place.
        """
        if where == "away":
            raise TransientError("the light is out")
        return f"nothing in {where}"

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        return "Look around.", {"row": {"seed": seed}}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "fall":
            raise RuntimeError("it fell")
        return "", float(action == "done"), True, False, {}


DESK = BoundEnv(EnvSpec(name="desk", version=1, factory=_Desk, rewards=("environment",), max_turns=3), "grpo-kit")


def test_tools_are_called_and_end_with_the_turns() -> None:
    with served(DESK) as client:
        client.reset()
        assert client.call("look", {"where": "the drawer"}).text == "nothing in the drawer"
        assert '"error"' in client.call("look", {"where": 3, "when": 1}).text
        assert client.submit("done").data["score"] == 1.0
        client.reset()
        for _ in range(2):
            assert not client.call("look", {"where": "x"}).data
        assert client.call("look", {"where": "x"}).data["score"] == 0.0


@pytest.mark.parametrize("fails", ["tool", "step"])
def test_what_fails_has_no_score(fails: str) -> None:
    with served(DESK) as client:
        client.reset()
        answer = client.call("look", {"where": "away"}) if fails == "tool" else client.submit("fall")
        assert (answer.error, answer.data) == (True, {})
        assert answer.text.startswith("The task failed, and has no score: ")
        assert client.submit("done").error


def test_a_reward_that_fails_gives_no_score() -> None:
    reward = HOST.reward("gsm8k.correctness")

    def broken(completion: str, answer: str) -> float:
        raise ValueError("no")

    spec: Any = replace(reward.spec, function=broken, isolation="inline")
    bound = HOST.env("gsm8k")
    episodes = episodes_of(bound, "train", limit=1, unbounded=1)
    with ServedEnv(bound, episodes, [replace(reward, spec=spec)], None, 60.0) as client:
        client.reset()
        answer = client.submit("1")
        assert answer.error
        assert answer.text.startswith("The task is over. It could not be scored: ")


def test_a_tool_named_as_ours_is_refused() -> None:
    schema = {"function": {"name": "submit"}}
    with pytest.raises(UsageError, match="env 'desk' has a tool named 'submit'"):
        refuse_clashes([schema], "desk")
