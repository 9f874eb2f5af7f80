"""`gym:ID`: real gymnasium environments, played by text."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy
import pytest
from gymnasium.utils.env_checker import check_env

from grpo.envs.gym.actions import described_actions, read_action
from grpo.envs.gym.env import TextGame
from grpo.envs.gym.known import Goal, reached
from grpo.envs.gym.text import shortened, written
from grpo.plugins.errors import OptionError, PluginNotFound, UsageError
from grpo.plugins.host import Host
from grpo.plugins.specs import EnvSpec

WAY = ("down", "down", "right", "right", "down", "right")
FOUR = gymnasium.spaces.Discrete(4)
NAMES = ("left", "down", "right", "up")
TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"  # what gymnasium 1.2 has


def play(env: Any, actions: Any) -> tuple[list[float], str, dict[str, Any]]:
    rewards: list[float] = []
    for action in actions:
        shown, reward, ended, cut, info = env.step(f"<action>{action}</action>")
        rewards.append(reward)
    assert ended or cut
    return rewards, shown, info


@pytest.mark.parametrize(
    ("env_id", "turns", "told"),
    [
        ("FrozenLake-v1", 100, "[S]FFF"),
        ("Blackjack-v1", 100, "your sum: "),
        (TAXI, 200, "+---------+"),
        ("CliffWalking-v1", 100, "x  C  C"),
        ("CartPole-v1", 500, "0.0"),
        ("MountainCarContinuous-v0", 999, "-0."),
        ("BabyAI-GoToObj-v0", 100, "mission: go to"),
        ("MiniGrid-Empty-5x5-v0", 100, "mission: get to the green goal square"),
    ],
)
def test_registered_environments_become_sound_environments_of_texts(
    host: Host, env_id: str, turns: int, told: str
) -> None:
    bound = host.env(f"gym:{env_id}")
    assert (bound.name, bound.spec.max_turns, bound.distribution) == (f"gym:{env_id}", turns, "grpo-kit")
    env = pickle.loads(pickle.dumps(bound.spec.factory))()
    check_env(env, skip_render_check=True)
    text, info = env.reset(seed=1)
    assert told in text
    assert info["prompt"][-1] == {"role": "user", "content": text}
    assert (text, info) == bound.make().reset(seed=1)
    env.close()


def test_the_lake_is_crossed_by_words_and_the_reward_is_the_lakes_own(host: Host) -> None:
    env = host.env("gym:FrozenLake-v1:is_slippery=false").make()
    env.reset(seed=0)
    rewards, shown, info = play(env, WAY)
    assert rewards == [0.0] * 5 + [1.0]
    assert shown.endswith("[G]")
    assert info == {"scores": {"return": 1.0, "unreadable": 0.0}, "success": True}
    env.reset(seed=0)
    assert play(env, ("right", "down"))[2] == {"scores": {"return": 0.0, "unreadable": 0.0}, "success": False}


def test_a_hole_and_the_goal_at_the_end_of_the_cliff_are_told_apart(host: Host) -> None:
    env = host.env("gym:CliffWalking-v1").make()
    env.reset(seed=0)
    rewards, _, info = play(env, ["up", *["right"] * 11, "down"])
    assert (sum(rewards), info["success"]) == (-13.0, True)


def test_a_completion_without_an_action_costs_a_turn_and_moves_nothing(host: Host) -> None:
    env = host.env("gym:FrozenLake-v1:is_slippery=false,penalty=-0.5").make()
    first = env.reset(seed=0)[0]
    shown, reward, ended, cut, info = env.step("I would rather not.")
    assert (reward, ended, cut, info["scores"]["unreadable"]) == (-0.5, False, False, 1.0)
    assert shown == f"That names no action. Actions: left, down, right, up.\n{first}"
    rewards = play(env, WAY)[0]
    assert sum(rewards) == 1.0
    env = host.env("gym:FrozenLake-v1:unreadable=end").make()
    env.reset(seed=0)
    assert env.step("")[2:4] == (True, False)
    assert env.reset(seed=0)[1]["row"] == {"env_id": "FrozenLake-v1"}


def test_an_episode_of_nothing_but_noise_is_truncated(host: Host) -> None:
    env = host.env("gym:Blackjack-v1").make()
    env.reset(seed=0)
    steps = [env.step("\x00") for _ in range(100)]
    assert [step[3] for step in steps] == [False] * 99 + [True]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("hit")
    env.reset(seed=0)
    with pytest.raises(TypeError, match="must be the completion's text"):
        env.step(1)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>up</action>", 3),
        ("left or down? <action> Down. </action>", 1),
        ("<action>up</action> no, <action>left", 0),
        ("<answer>2</answer>", 2),
        ("I think hard about up.\n\nRight\n", 2),
        ("3", 3),
        ("So I go up.", 3),
        ("up or down", None),
        ("4", None),
        ("-1", None),
        ("", None),
        ("upwards", None),
        ("<action></action>", None),
        ("<action>" * 50_000, None),
    ],
)
def test_a_discrete_action_is_read_by_its_number_or_its_word(text: str, action: int | None) -> None:
    assert read_action(text, FOUR, NAMES) == action


@pytest.mark.parametrize(
    ("text", "found"),
    [("[0.5, 1]", [0.5, 1.0]), ("[3, 0]", None), ("[1]", None), ("x", None), ("[[", None), ("[NaN, 0]", None)],
)
def test_numbers_are_read_as_json_and_must_be_in_the_space(text: str, found: list[float] | None) -> None:
    action = read_action(text, gymnasium.spaces.Box(-2.0, 2.0, (2,)), ())
    assert found is None if action is None else numpy.allclose(action, found or [])


def test_a_discrete_space_may_start_elsewhere() -> None:
    assert read_action("5", gymnasium.spaces.Discrete(2, start=5), ()) == 5
    assert read_action("0", gymnasium.spaces.Discrete(2, start=5), ()) is None


def test_what_minigrid_sees_is_told_in_words(host: Host) -> None:
    env = host.env("gym:BabyAI-GoToObj-v0").make()
    env.reset(seed=1)
    assert "in sight: yellow key (2 ahead, 2 to the right)" in [env.step("right")[0] for _ in range(2)][1]


def test_values_can_be_asked_for_and_long_ones_are_cut(host: Host) -> None:
    env = host.env(f"gym:{TAXI}:render=values").make()
    assert env.reset(seed=0)[0].isdecimal()
    assert written(None, numpy.zeros((30, 10))).endswith("... (300 numbers)")
    assert written(None, {"a": (1, 0.25)}) == "a: 1, 0.25"


def test_words_and_rules_can_be_given(host: Host) -> None:
    env = host.env('gym:CartPole-v1:actions=["push left","right"],rules=Balance the pole.').make()
    system = env.reset(seed=0)[1]["prompt"][0]["content"]
    assert system.startswith("Balance the pole.\nActions: push left, right.")
    assert env.step("<action>push left</action>")[4]["scores"]["unreadable"] == 0.0


@pytest.mark.parametrize(
    ("text", "fault", "error"),
    [
        ("gym:FrozenLak-v1", "Did you mean: `FrozenLake`", PluginNotFound),
        ("gym:no_such_module:X-v0", "'no_such_module' cannot be imported", PluginNotFound),
        ("gym:no_such_module:X-v0", "Write a file as gym:./file.py:X-v0", PluginNotFound),
        ("gym:./no_such_file.py:X-v0", "no file './no_such_file.py'", PluginNotFound),
        ("gym:./no_such_file:X-v0", "is not the name of a module", PluginNotFound),
        ("gym", "Name one: gym:NAME", OptionError),
        ("gym:", "names no environment of 'gym'", UsageError),
        ("gym:CliffWalking-v1:slippery=true", "Did you mean 'is_slippery'", OptionError),
        ("gym:Blackjack-v1:render=ansi", "draws no text", OptionError),
        (f'gym:{TAXI}:actions=["go"]', "6 different words", OptionError),
        ("gym:FrozenLake-v1:map_name=9x9", "cannot be made with", OptionError),
    ],
)
def test_what_cannot_be_played_is_said_plainly(host: Host, text: str, fault: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        host.env(text).make()
    assert fault in str(caught.value)


OWN = (
    """
import gymnasium

class Plain(gymnasium.Env):
    """
    + '"""Takes no render mode, and asks for a size."""'
    + """
    observation_space = action_space = gymnasium.spaces.Discrete(9)
    def __init__(self, size, start=0):
        self.size, self.start = size, start
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.start, {}
    def step(self, action):
        return self.size, 1.0, True, False, {}

gymnasium.register("own/Plain-v0", entry_point=Plain)
"""
)


def test_an_environment_is_taken_from_a_file_as_it_is_written(host: Host, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    where = f"gym:{tmp_path}/own.py:own/Plain-v0"
    with pytest.raises(OptionError, match="size"):
        host.env(where)
    env = host.env(f"{where}:size=3").make()
    assert env.reset(seed=0)[0] == "0"
    assert env.step("<action>1</action>")[:3] == ("3", 1.0, True)
    (tmp_path / "two.py").write_text((tmp_path / "own.py").read_text().replace("own/", "two/"))
    with pytest.raises(PluginNotFound, match=r"two\.py registers: two/Plain-v0"):
        host.env(f"gym:{tmp_path}/two.py:Plain")
    with pytest.raises(PluginNotFound, match="Did you mean: `Plain`"):
        host.env(f"gym:{tmp_path}/own.py:own/Plan-v0")


def test_the_same_state_for_each_member_of_a_group(host: Host) -> None:
    games = [host.env(f"gym:{TAXI}").make() for _ in range(3)]
    assert isinstance(games[0], TextGame)
    assert len({repr(game.reset(seed=7)) for game in games}) == 1
    assert len({repr(game.step("north")) for game in games}) == 1
    assert isinstance(host.find("env", f"gym:{TAXI}").spec, EnvSpec)


def control(host: Host, env_id: str, pick: Any, turns: int = 1000) -> dict[str, Any]:
    """Plays a control task by a rule of its numbers and returns what the last step said, with how it ended."""
    env: Any = host.env(f"gym:{env_id}").make()
    shown, _ = env.reset(seed=3)
    for _ in range(turns):
        shown, _, ended, cut, info = env.step(f"<action>{pick([float(part) for part in shown.split(', ')])}</action>")
        if ended or cut:
            return {**info, "terminated": ended}
    raise AssertionError("it never ended")


def balance(seen: list[float]) -> str:
    return "right" if seen[2] + 0.5 * seen[3] + 0.01 * seen[0] + 0.05 * seen[1] > 0 else "left"


@pytest.mark.parametrize(
    ("env_id", "pick", "terminated", "success"),
    [
        ("CartPole-v1", lambda seen: "left", True, False),
        ("CartPole-v1", balance, False, True),
        ("MountainCar-v0", lambda seen: "right" if seen[1] >= 0 else "left", True, True),
        ("MountainCar-v0", lambda seen: "none", False, False),
        ("Acrobot-v1", lambda seen: "push" if seen[5] >= 0 else "push back", True, True),
        ("Pendulum-v1", lambda seen: "[0]", False, None),
    ],
)
def test_success_in_control_tasks_is_right_or_unknown(
    host: Host, env_id: str, pick: Any, terminated: bool, success: bool | None
) -> None:
    found = control(host, env_id, pick)
    assert (found["terminated"], found["success"]) == (terminated, success)


def test_a_limit_that_is_reached_by_turns_without_an_action_is_no_success(host: Host) -> None:
    env: Any = host.env("gym:CartPole-v1").make()
    env.reset(seed=0)
    cut = False
    while not cut:
        *_, ended, cut, info = env.step("I do nothing")
        assert not ended
    assert info["success"] is False


@pytest.mark.parametrize(
    ("goal", "rewards", "ended", "cut", "found"),
    [
        (None, [0.0, 0.0, 1.0], True, False, True),
        (None, [0.0, 0.0], True, False, False),
        (None, [0.0, 0.0], False, True, False),
        (None, [1.0, 1.0, 1.0], True, False, None),
        (None, [1.0, 1.0, 1.0], False, True, None),
        (None, [-1.0, -1.0], True, False, None),
        (None, [-1.0, -10.0], True, False, False),
        (None, [-1.0, 20.0], True, False, True),
        ("paid", [1.0, -1.0], True, False, False),
        ("ends", [-1.0], True, False, True),
        ("lasts", [1.0], True, False, False),
        ("lasts", [1.0], True, True, False),
        ("unknown", [1.0], True, False, None),
    ],
)
def test_of_other_environments_only_what_rewards_leave_no_doubt_about_is_said(
    goal: Goal | None, rewards: list[float], ended: bool, cut: bool, found: bool | None
) -> None:
    assert reached(goal, rewards, ended=ended, cut=cut) is found


def test_every_registered_id_plays_or_is_one_line(host: Host) -> None:
    told: list[str] = []
    for env_id in sorted(gymnasium.registry):
        try:
            env: Any = host.env(f"gym:{env_id}").make()
            env.close()
        except UsageError as error:
            told.append(str(error))
    assert not any("\n" in line for line in told)


def test_texts_of_observations_and_actions_have_limits() -> None:
    many = gymnasium.spaces.Discrete(10**9, start=5)
    assert described_actions(many, ()) == "Actions: the whole numbers from 5 to 1000000004."
    assert read_action("<action>1000000004</action>", many, ()) == 1_000_000_004
    assert read_action("<action>1000000005</action>", many, ()) is None
    assert read_action("<action>" + "9" * 10_000 + "</action>", many, ()) is None
    assert len(described_actions(gymnasium.spaces.Box(-1, 1, (1000, 1000)), ())) < 1000
    assert len(described_actions(gymnasium.spaces.Discrete(2), ("a" * 10_000, "b"))) < 5000
    assert shortened("x" * 5000) == "x" * 4000 + " ... (5000 characters)"
