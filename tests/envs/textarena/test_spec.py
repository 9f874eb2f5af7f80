"""`textarena:NAME`: real games of TextArena for one player."""

from __future__ import annotations

import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from grpo.envs.extras import imported
from grpo.plugins.errors import OptionError, PluginNotFound
from grpo.plugins.host import Host

GAMES = {"GuessTheNumber-v0": 10, "FrozenLake-v0-random": 100, "2048-v0-mega-easy": 50, "Mastermind-v0": 20}


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.discover()


def transcript(env: Any, seed: int, moves: int = 6) -> list[Any]:
    """What an episode shows, played with the same moves."""
    told = [env.reset(seed=seed)[0]]
    for number in range(moves):
        *step, info = env.step(f"I take <action>[{('down', 'right', '1 2 3 4', '7')[number % 4]}]</action>")
        told.append((*step, info))
        if step[2] or step[3]:
            break
    return told


@pytest.mark.parametrize("name", GAMES)
def test_games_are_sound_environments_of_texts(host: Host, name: str) -> None:
    bound = host.env(f"textarena:{name}")
    assert bound.spec.max_turns == GAMES[name]
    env = pickle.loads(pickle.dumps(bound.spec.factory))()
    check_env(env, skip_render_check=True)


def test_a_game_is_won_and_its_last_reward_counts(host: Host) -> None:
    env = host.env("textarena:GuessTheNumber-v0:max_number=8").make()
    told, info = env.reset(seed=5)
    assert "between 1 and 8" in told
    assert info["row"] == {"game": "GuessTheNumber-v0"}
    low, high = 1, 8
    while True:
        guess = (low + high) // 2
        told, reward, ended, cut, info = env.step(f"Half of it: <answer>{guess}</answer>")
        if ended:
            break
        assert reward == 0.0
        assert "Half of it" not in told, "the conversation holds what the policy said"
        low, high = (guess + 1, high) if "higher" in told else (low, guess - 1)
    assert (reward, cut, info["success"], info["invalid_move"]) == (1.0, False, True, False)
    assert "Congratulations" in info["reason"]


def test_invalid_moves_are_answered_and_then_lose(host: Host) -> None:
    env = host.env("textarena:GuessTheNumber-v0").make()
    env.reset(seed=1)
    told, *_ = env.step("no number")
    assert "invalid move" in told
    _, reward, ended, _, info = env.step("none again")
    assert ended
    assert reward < 1.0
    assert info["invalid_move"]
    assert not info["success"]


def test_an_endless_number_is_an_invalid_move(host: Host) -> None:
    env = host.env("textarena:GuessTheNumber-v0").make()
    env.reset(seed=1)
    told, *_ = env.step(f"[{'7' * 1_000_000}]")
    assert "invalid move" in told


def test_a_budget_of_turns_truncates(host: Host) -> None:
    env = host.env("textarena:GuessTheNumber-v0:turns=2").make()
    env.reset(seed=0)
    assert [env.step(f"[{guess}]")[2:4] for guess in (20, 19)] == [(False, False), (False, True)]


@pytest.mark.parametrize("name", ["2048-v0-mega-easy", "FrozenLake-v0-random"])
def test_games_side_by_side_draw_from_numbers_of_their_own(host: Host, name: str) -> None:
    make = host.env(f"textarena:{name}").make
    alone = [transcript(make(), seed) for seed in range(6)]
    assert len({str(one) for one in alone}) > 1
    random.seed(7)
    expected = random.random()
    random.seed(7)
    with ThreadPoolExecutor(6) as threads:
        beside = list(threads.map(lambda seed: transcript(make(), seed), range(6)))
    assert beside == alone
    assert random.random() == expected, "the process's own numbers are left alone"


@pytest.mark.parametrize(
    ("spec", "error", "why"),
    [
        ("GuessTheNumbr-v0", PluginNotFound, "Did you mean 'GuessTheNumber-v0'"),
        ("TicTacToe-v0", OptionError, "one player"),
        ("GuessTheNumber-v0:size=3", OptionError, "no option 'size'"),
    ],
)
def test_what_cannot_be_played_is_refused(host: Host, spec: str, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        host.env(f"textarena:{spec}").make()


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(PluginNotFound, match=r"pip install 'grpo-kit\[textarena\]'"):
        imported("textarena", "textarena", "textarena:Wordle-v0")
    with pytest.raises(PluginNotFound, match="nowhere, which is not installed"):
        imported("nowhere.at_all", "extra", "nowhere:NAME")
