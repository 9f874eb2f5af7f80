"""`textarena:NAME`: real games of TextArena for one player."""

from __future__ import annotations

import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest
from gymnasium.utils.env_checker import check_env

from grpo.envs.members import imported
from grpo.plugins.errors import OptionError, PluginNotFound
from grpo.plugins.host import Host

GAMES = {"GuessTheNumber-v0": 10, "FrozenLake-v0-random": 100, "2048-v0-mega-easy": 50, "Mastermind-v0": 20}


def transcript(env: Any, seed: int, moves: int = 6) -> list[Any]:
    """What an episode shows, played with the same moves."""
    shown = [env.reset(seed=seed)[0]]
    for number in range(moves):
        *step, info = env.step(f"I take <action>[{('down', 'right', '1 2 3 4', '7')[number % 4]}]</action>")
        shown.append((*step, info))
        if step[2] or step[3]:
            break
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_games_are_sound_environments_of_texts(host: Host, name: str) -> None:
    bound = host.env(f"textarena:{name}")
    assert bound.spec.max_turns == GAMES[name]
    env = pickle.loads(pickle.dumps(bound.spec.factory))()
    check_env(env, skip_render_check=True)


def test_a_game_is_won_and_its_last_reward_counts(host: Host) -> None:
    env = host.env("textarena:GuessTheNumber-v0:max_number=8").make()
    observation, info = env.reset(seed=5)
    assert "between 1 and 8" in observation
    assert info["row"] == {"game": "GuessTheNumber-v0"}
    low, high = 1, 8
    while True:
        guess = (low + high) // 2
        observation, reward, ended, cut, info = env.step(f"Half of it: <answer>{guess}</answer>")
        if ended:
            break
        assert reward == 0.0
        assert "Half of it" not in observation, "the conversation holds what the policy said"
        low, high = (guess + 1, high) if "higher" in observation else (low, guess - 1)
    assert (reward, cut, info["success"], info["invalid_move"]) == (1.0, False, True, False)
    assert "Congratulations" in info["reason"]


def test_invalid_moves_are_answered_and_then_lose(host: Host) -> None:
    env = host.env("textarena:GuessTheNumber-v0").make()
    env.reset(seed=1)
    observation, *_ = env.step("no number")
    assert "invalid move" in observation
    _, reward, ended, _, info = env.step("none again")
    assert ended
    assert reward < 1.0
    assert info["invalid_move"]
    assert not info["success"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Countdown-v0", "Cryptarithm-v0", "Slitherlink-v0", "ThreeCardMonte-v0"])
def test_a_game_that_breaks_at_a_second_invalid_move_is_lost(host: Host, name: str) -> None:
    env = host.env(f"textarena:{name}").make()
    env.reset(seed=1)
    _, reward, ended, _, _ = env.step("no move")
    assert (reward, ended) == (0.0, False)
    _, reward, ended, cut, info = env.step("none again")
    assert (reward, ended, cut) == (0.0, True, False)
    assert info["invalid_move"]
    assert "Invalid Move: " in info["reason"]
    assert not info["success"]


@pytest.mark.slow
def test_a_game_whose_data_the_sandbox_lacks_is_read_in_a_process_with_limits(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.envs.graders.remote import PROCESS
    from grpo.envs.textarena import env as module
    from grpo.plugins.errors import TransientError

    class Blind:
        def ask(self, request: Any, works: Any) -> None:
            raise TransientError("no word list here")

    real = module.players
    monkeypatch.setattr(module, "players", lambda sandbox, seconds: real(sandbox, seconds) if sandbox else Blind())
    monkeypatch.setattr(module, "_elsewhere", {})
    env = host.env("textarena:Bandit-v0").make()
    env.reset(seed=1)
    assert env.step("no move")[1:3] == (0.0, False)
    assert module._elsewhere == {"Bandit-v0": PROCESS}


@pytest.mark.slow
def test_a_move_that_a_game_cannot_stand_has_lost_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from grpo.envs.graders.remote import Graders, Reply

    env = host.env("textarena:GuessTheNumber-v0").make()
    env.reset(seed=1)
    with monkeypatch.context() as patched:
        patched.setattr(Graders, "ask", lambda self, request, works: Reply(None, "the grader raised KeyError: 'x'"))
        observation, reward, ended, cut, info = env.step("7")
    assert (observation, reward, ended, cut) == ("", 0.0, True, False)
    assert (info["reason"], info["success"]) == ("Invalid Move: the grader raised KeyError: 'x'", False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["2048-v0-mega-easy", "Bandit-v0", "Blackjack-v0", "Mastermind-v0", "Set-v0", "Sudoku-v0"]
)
def test_a_game_in_the_sandbox_goes_as_one_that_is_played_here(host: Host, name: str) -> None:
    from grpo.envs.textarena.env import plain_game
    from grpo.envs.textarena.guest import outcome_of, output_of

    moves = ["down", "red", "hit", "1 2 3 4", "1 2 5", "up", "stand", "left"]
    env = host.env(f"textarena:{name}").make()
    game, brackets = plain_game(name, {})
    random.seed(3)
    numpy.random.seed(3)
    game.reset(num_players=1, seed=3)
    assert env.reset(seed=3)[0] == output_of(game)
    random.setstate(env.unwrapped._numbers.state[0])
    numpy.random.set_state(env.unwrapped._numbers.state[1])
    for move in moves:
        ended, _ = game.step(action=f"[{move}]" if brackets else move)
        here = outcome_of(game, bool(ended), output_of(game))
        observation, reward, over, _, info = env.step(move)
        assert (observation, reward, over) == (here["told"], here["reward"], here["ended"])
        if over:
            assert info["reason"] == here["reason"]
            break


@pytest.mark.parametrize("key", ["none", None])
@pytest.mark.parametrize("name", ["TwentyQuestions-v0", "GuessWho-v0"])
def test_a_game_that_asks_another_model_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch, name: str, key: str | None
) -> None:
    """With a key for that model or without one, for which the library has an error of its own."""
    if key:
        monkeypatch.setenv("OPENROUTER_API_KEY", key)
    else:
        monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(OptionError, match="asks another model"):
        host.env(f"textarena:{name}")


def test_an_endless_number_is_an_invalid_move(host: Host) -> None:
    env = host.env("textarena:GuessTheNumber-v0").make()
    env.reset(seed=1)
    observation, *_ = env.step(f"[{'7' * 1_000_000}]")
    assert "invalid move" in observation


def test_a_budget_of_turns_truncates(host: Host) -> None:
    env = host.env("textarena:GuessTheNumber-v0:turns=2").make()
    env.reset(seed=0)
    assert [env.step(f"[{guess}]")[2:4] for guess in (20, 19)] == [(False, False), (False, True)]


@pytest.mark.slow
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
        ("SpiteAndMalice-v0", OptionError, "several players"),
        ("MarketEntryGame-v0", OptionError, "several players"),
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
