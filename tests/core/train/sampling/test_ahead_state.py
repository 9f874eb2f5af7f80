"""The batch that was sampled ahead comes back from a checkpoint as it was, or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from grpo.core.env.episodes import Episode
from grpo.core.rollout.turns.play import Branch, Trajectory
from grpo.core.scoring.early import EarlyCalls
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.sampling.ahead_state import file_of, read_ahead, write_ahead
from grpo.core.train.types import Generation, Wasted
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Completion, Message

PROMPT: tuple[Message, ...] = ({"role": "user", "content": "A number?"},)
EPISODES = [Episode(0, PROMPT, {"answer": "4"}, None, env="guess"), Episode(1, PROMPT, {"answer": "5"}, None)]
PROMPTS = [[1, 2, 3], [1, 2]]


def trajectories() -> list[Trajectory]:
    """A rollout of two turns, whose observation was not sampled, and one of one turn."""
    said: tuple[Message, ...] = (
        {"role": "assistant", "content": "3"},
        {"role": "user", "content": "higher"},
        {"role": "assistant", "content": "4 \u2713"},
    )
    played = Completion(
        "4 \u2713",
        messages=said,
        prompt=PROMPT,
        row={"answer": "4"},
        token_ids=(7, 8, 9),
        logprobs=(-0.1, -1e-7, -2.345678901234567),
        finish_reason="length",
        turns=2,
        info={"rewards": [0.0, 1.0], "terminated": True},
        env="guess",
    )
    single = Completion(
        "",
        messages=({"role": "assistant", "content": ""},),
        prompt=PROMPT,
        row={"answer": "5"},
        token_ids=(0,),
        logprobs=(-0.5,),
    )
    return [
        Trajectory(
            (7, 30, 31, 8, 9), (-0.1, 0.0, 0.0, -1e-7, -2.345678901234567), (True, False, False, True, True), played
        ),
        Trajectory((0,), (-0.5,), (True,), single),
    ]


def generation(rollouts: list[Trajectory]) -> Generation:
    return Generation(EPISODES, PROMPTS, rollouts, EarlyCalls({}, lambda task: None))


def rollouts_of(folder: Path, prompts: list[list[int]]) -> Sequence[Trajectory] | None:
    record = read_ahead(folder, 1)
    assert record is not None
    batch = record.generation(EPISODES, lambda _: prompts, lambda place: EPISODES[place[1]])
    return None if batch is None else batch.rollouts


def test_rollouts_come_back_to_the_last_bit(tmp_path: Path) -> None:
    write_ahead(tmp_path, 1, generation(trajectories()), mean=1e-9, largest=0.25)
    record = read_ahead(tmp_path, 1)
    assert record is not None
    assert (record.mean, record.largest) == (1e-9, 0.25)
    assert rollouts_of(tmp_path, PROMPTS) == trajectories()


def test_a_tree_comes_back_with_its_rows(tmp_path: Path) -> None:
    rows = (Branch((1, 2, 3), (7,), (-0.1,), (True,)), Branch((4,), (8, 5, 9), (-1e-7, 0.0, -2.5), (True, False, True)))
    tree = Trajectory(
        (7, 8, 5, 9), (-0.1, -1e-7, 0.0, -2.5), (True, True, False, True), trajectories()[0].completion, branches=rows
    )
    tree = replace(tree, completion=replace(tree.completion, logprobs=(-0.1, -1e-7, -2.5)))
    write_ahead(tmp_path, 1, generation([tree, trajectories()[1]]), mean=0.0, largest=0.0)
    assert rollouts_of(tmp_path, PROMPTS) == [tree, trajectories()[1]]


@pytest.mark.parametrize("prompts", [[[1, 2, 3], [1, 4]], [[1, 2, 3]], [[1, 2], [1, 2, 3]]], ids=str)
def test_rollouts_that_answer_other_prompts_are_not_used(tmp_path: Path, prompts: list[list[int]]) -> None:
    write_ahead(tmp_path, 1, generation(trajectories()), mean=0.0, largest=0.0)
    assert rollouts_of(tmp_path, prompts) is None


def test_a_checkpoint_without_a_batch_has_none(tmp_path: Path) -> None:
    assert read_ahead(tmp_path, 1) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_ahead(tmp_path, 1, generation(trajectories()), mean=0.0, largest=0.0)
    (tmp_path / file_of(0)).write_text((tmp_path / file_of(0)).read_text()[:-20])
    with pytest.raises(UsageError, match=file_of(0)):
        read_ahead(tmp_path, 1)


def test_a_write_that_fails_leaves_the_earlier_batch(tmp_path: Path) -> None:
    write_ahead(tmp_path, 1, generation(trajectories()), mean=0.5, largest=0.0)
    broken = trajectories()
    broken[0].completion.info["rewards"].append(object())
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_ahead(tmp_path, 1, generation(broken), mean=0.0, largest=0.0)
    assert [path.name for path in tmp_path.iterdir()] == [file_of(0)]
    assert json.loads((tmp_path / file_of(0)).read_text())["mean"] == 0.5


def test_a_batch_that_was_filled_up_comes_back_with_its_scores_and_what_was_sampled_in_vain(tmp_path: Path) -> None:
    other = Episode(7, PROMPT, {"answer": "6"}, None, env="guess", group=3)
    episodes = {("guess", 0): EPISODES[0], ("guess", 7): other}
    first, second = trajectories()
    first = replace(first, completion=replace(first.completion, row={"answer": "6"}))
    outcomes = {
        "close": [Outcome("score", 0.1, metrics={"off": 2.0}, turns=(0.1, 0.0)), Outcome("failure", None, "lost")]
    }
    wasted = (Wasted(3, replace(EPISODES[0], group=3), (1, 2), trajectories()[0], {"close": Outcome("abstain")}),)
    filled = replace(generation([first, second]), episodes=[other, EPISODES[1]], outcomes=outcomes, wasted=wasted)
    write_ahead(tmp_path, 1, filled, mean=0.0, largest=0.0)
    record = read_ahead(tmp_path, 1)
    assert record is not None
    asked = [replace(EPISODES[0], group=3), EPISODES[1]]
    batch = record.generation(asked, lambda _: PROMPTS, episodes.__getitem__)
    assert batch is not None
    assert batch.episodes == [other, EPISODES[1]]
    assert batch.outcomes == outcomes
    assert batch.rollouts[0].completion.row == {"answer": "6"}
    restored = batch.wasted
    assert [(one.group, one.start, list(one.prompt), one.outcomes) for one in restored] == [
        (3, replace(EPISODES[0], group=3), [1, 2], {"close": Outcome("abstain")})
    ]
    assert restored[0].rollout.completion.row == {"answer": "4"}
