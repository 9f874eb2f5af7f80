"""Episodes: one per row, in order, and an environment that breaks the contract is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from patience import PATIENCE, EnvClock

from grpo.core.env import episodes as episodes_module
from grpo.core.env.episodes import HELD_OUT_SEED, Episodes, episodes_of, hash_of, joined, sample_of
from grpo.core.rollout.turns.play import completed
from grpo.core.rollout.types import Sampled
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError, PluginError
from grpo.plugins.host import Host
from grpo.plugins.specs import EnvSpec


class Asking(gymnasium.Env[str, str]):
    """Asks for the row it is given, or for the seed."""

    closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        if options is None:
            return f"seed {seed}", {"row": {"answer": seed}}
        row = options["row"]
        if row.get("answer") == "bad":
            raise ValueError("no such question")
        return f"What is {row['answer']}?", {"demonstration": row.get("solution")}

    def close(self) -> None:
        Asking.closed += 1


def env(rows: Callable[[str], Any] | None, **changes: Any) -> BoundEnv:
    return BoundEnv(EnvSpec(name="asking", version=1, factory=Asking, dataset=rows, **changes), "some-dist")


def test_one_episode_a_row_in_order() -> None:
    rows = [{"answer": str(number), "solution": f"it is {number}"} for number in range(5)]
    found = episodes_of(env(lambda split: rows), "train", limit=3, unbounded=99)
    assert [episode.index for episode in found] == [0, 1, 2]
    assert [dict(episode.row) for episode in found] == rows[:3]
    assert found[1].prompt == ({"role": "user", "content": "What is 1?"},)
    assert found[1].demonstration == "it is 1"
    assert len(episodes_of(env(lambda split: rows), "train", limit=None, unbounded=1)) == 5


def test_an_environment_without_rows_makes_its_own_and_never_tests_on_them() -> None:
    train = episodes_of(env(None), "train", limit=None, unbounded=4)
    test = episodes_of(env(None), "test", limit=2, unbounded=2)
    assert [episode.row["answer"] for episode in train] == [0, 1, 2, 3]
    assert [episode.row["answer"] for episode in test] == [HELD_OUT_SEED, HELD_OUT_SEED + 1]
    assert len(episodes_of(env(None), "train", limit=7, unbounded=4)) == 7, "a limit of the user's counts"


def test_no_rows_are_an_error() -> None:
    with pytest.raises(DatasetError, match="'asking': the split 'test' has no rows"):
        episodes_of(env(lambda split: []), "test", limit=None, unbounded=1)


def test_an_environment_that_cannot_start_is_named_with_the_row_and_closed() -> None:
    before = Asking.closed
    with pytest.raises(PluginError, match=r"'asking' \(some-dist\) cannot start row 1: ValueError: no such question"):
        episodes_of(env(lambda split: [{"answer": "1"}, {"answer": "bad"}]), "train", limit=None, unbounded=1)
    assert Asking.closed == before + 1


def test_an_environment_that_hangs_at_the_start_of_an_episode_ends_the_planning_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = EnvClock(monkeypatch)

    class Hanging(Asking):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            if seed == 2:
                clock.hang()
            return super().reset(seed=seed, options=options)

    hanging = BoundEnv(EnvSpec(name="hanging", version=1, factory=Hanging), "some-dist")
    with pytest.raises(PluginError, match=r"'hanging' .* cannot start seed 2: TimeoutError: no answer within 60 s"):
        episodes_of(hanging, "train", limit=5, unbounded=1, seconds=PATIENCE)


def test_an_environment_that_exits_cannot_end_the_process() -> None:
    class Leaving(Asking):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            sys.exit(0)

    leaving = BoundEnv(EnvSpec(name="leaving", version=1, factory=Leaving), "some-dist")
    with pytest.raises(PluginError, match=r"'leaving' .* cannot start seed 0: SystemExit: 0"):
        episodes_of(leaving, "train", limit=5, unbounded=1)


def test_an_episode_knows_how_it_starts_again() -> None:
    rows = [{"answer": str(number), "solution": ["1", "2"]} for number in range(2)]
    found = episodes_of(env(lambda split: rows, max_turns=3), "train", limit=None, unbounded=1)
    assert found[1].reset == {"seed": 1, "options": {"row": rows[1]}}
    assert found[1].actions == ("1", "2")
    assert episodes_of(env(None), "test", limit=1, unbounded=1)[0].reset == {"seed": HELD_OUT_SEED}


def test_the_installed_environment_gives_what_rewards_read() -> None:
    host = Host.discover()
    (episode,) = episodes_of(host.env("gsm8k:size=5"), "train", limit=1, unbounded=1)
    done = completed(episode, "<answer>7</answer>", Sampled((5, 2), (-0.5, -0.1), "stop"))
    assert done.row == episode.row
    assert {"question", "answer"} <= set(done.row)
    assert done.messages == ({"role": "assistant", "content": "<answer>7</answer>"},)
    assert (done.token_ids, done.logprobs, done.finish_reason) == ((5, 2), (-0.5, -0.1), "stop")
    assert episode.demonstration
    assert isinstance(episode.demonstration, str)
    assert host.reward("gsm8k.correctness").call(
        completed(episode, episode.demonstration, Sampled((2,), (0.0,), "stop"))
    )


@pytest.fixture
def few_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes_module, "STARTED", 4)


class Counted(list[dict[str, Any]]):
    """Rows that know which of them have other columns."""

    kinds = (7,)


ROWS = Counted({"answer": str(number), "solution": f"it is {number}"} for number in range(10))


@pytest.mark.usefixtures("few_started")
def test_of_many_rows_some_are_started_and_the_others_when_they_are_asked_for() -> None:
    found = episodes_of(env(lambda split: ROWS), "train", limit=None, unbounded=1)
    assert isinstance(found, Episodes)
    assert [episode.index for episode in sample_of(found)] == [0, 2, 5, 7], "spread evenly, and those of other columns"
    whole = [*episodes_of(env(lambda split: ROWS), "train", limit=4, unbounded=1), *found[4:]]
    assert list(found) == whole
    assert (found[9], found[-1], found[2:7:2]) == (whole[9], whole[9], tuple(whole[2:7:2]))
    assert found.some([8, 0, 8]) == (whole[8], whole[0], whole[8])
    assert list(found.sizes) == [len("0it is 0")] * 10
    assert len(found) == 10
    with pytest.raises(IndexError):
        found[10]


@pytest.mark.usefixtures("few_started")
def test_a_row_that_cannot_start_is_named_when_its_turn_comes() -> None:
    rows = [{"answer": "bad" if number == 3 else str(number)} for number in range(10)]
    found = episodes_of(env(lambda split: rows), "train", limit=None, unbounded=1)
    assert found[4].index == 4
    with pytest.raises(PluginError, match=r"'asking' \(some-dist\) cannot start row 3: ValueError: no such question"):
        found[3]


@pytest.mark.usefixtures("few_started")
def test_an_environment_that_is_stepped_starts_every_row() -> None:
    assert isinstance(episodes_of(env(lambda split: ROWS, max_turns=2), "train", limit=None, unbounded=1), tuple)
    assert isinstance(episodes_of(env(None), "train", limit=None, unbounded=9), tuple)


@pytest.mark.usefixtures("few_started")
def test_episodes_of_several_environments_are_one_sequence() -> None:
    many = episodes_of(env(lambda split: ROWS), "train", limit=None, unbounded=1)
    few = episodes_of(env(lambda split: ROWS), "train", limit=3, unbounded=1)
    both = joined([few, many])
    assert (len(both), both[2], both[3], both[-1]) == (13, few[2], many[0], many[9])
    assert both[2:4] == (few[2], many[0])
    assert list(both) == [*few, *many]
    assert joined([few, few]) == (*few, *few)


@pytest.mark.usefixtures("few_started")
def test_the_hash_of_rows_changes_with_a_row() -> None:
    def of(rows: list[dict[str, Any]]) -> str:
        return hash_of([episodes_of(env(lambda split: rows), "train", limit=None, unbounded=1)])

    assert of(ROWS) == of([dict(row) for row in ROWS])
    for size in (10, 3):
        assert of(ROWS[:size]) != of([*ROWS[: size - 1], {"answer": "0"}])
