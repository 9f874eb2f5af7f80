"""Turns with advantages of their own: what a turn earned, what it is worth, and which tokens learn from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo import Completion, GroupScores, Scored, advantage, check_advantage
from grpo.core.config.schema import parse_config
from grpo.core.planning.objective import bind_objective
from grpo.core.record.run_dir import RunDir, read_rollouts
from grpo.core.record.trained import read_trained
from grpo.core.scoring.outcome import Outcome, Reader
from grpo.core.train.advantages.compute import Advantages
from grpo.core.train.advantages.estimators import return_to_go
from grpo.core.train.batch.batch import Batch, advantages_of
from grpo.core.train.batch.metrics import sampling_metrics
from grpo.core.train.batch.tensors import of_tokens
from grpo.core.train.losses import grpo_losses
from grpo.core.train.update.objective import takes_turns
from grpo.plugins._spec.binding import BoundAdvantage, BoundLoss, BoundReward
from grpo.plugins.decorators import reward
from grpo.plugins.errors import PluginError, RunError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.training import LossTokens, TokenCosts
from grpo.plugins.training_decorators import loss

CPU = torch.device("cpu")


@reward(version=1)
def played(completion: Completion) -> float:
    return 0.0


@reward(version=1)
def liked(completion: Completion) -> float:
    return 0.0


def turn_means(scores: GroupScores, *, others: bool, deviation: bool) -> torch.Tensor:
    """Returns to go less the mean of those that reach the turn, as is common."""
    assert scores.turns is not None
    to_go = scores.turns.nan_to_num(0.0).flip(2).cumsum(dim=2).flip(2).masked_fill(scores.turns.isnan(), math.nan)
    found = to_go - to_go.nanmean(dim=1, keepdim=True)
    number = (~to_go.isnan()).sum(dim=1, keepdim=True)
    if deviation:
        found = found / ((found**2).nanmean(dim=1, keepdim=True).sqrt() + 1e-4)
    return found * number / (number - 1).clamp(min=1) if others else found


@advantage(version=1, unbiased=True, turns=True)
def mean_of_the_turn(scores: GroupScores) -> torch.Tensor:
    return turn_means(scores, others=False, deviation=False)


@advantage(version=1, unbiased=True, turns=True)
def normalised_in_the_turn(scores: GroupScores) -> torch.Tensor:
    return turn_means(scores, others=False, deviation=True)


@advantage(version=1, unbiased=True, turns=True)
def nothing_without_company(scores: GroupScores) -> torch.Tensor:
    return turn_means(scores, others=True, deviation=False)


@advantage(version=1, unbiased=True, turns=True)
def own_reward_alone(scores: GroupScores) -> torch.Tensor:
    assert scores.turns is not None
    number = (~scores.turns.isnan()).sum(dim=1, keepdim=True)
    found = scores.turns - scores.turns.nanmean(dim=1, keepdim=True)
    return found * number / (number - 1).clamp(min=1)


@pytest.mark.parametrize(
    "common", [mean_of_the_turn, normalised_in_the_turn, nothing_without_company, own_reward_alone]
)
def test_comparing_those_that_reach_a_turn_is_biased_where_the_policy_decides_how_many_do(common: Any) -> None:
    """Over every batch that a policy can sample which stops after one turn, or does well or badly in a second one."""
    [finding] = [one for one in check_advantage(common).findings if one.relation == "expected gradient of turns"]
    assert finding.severity == "error"
    assert "claims to be unbiased" in finding.message


def test_the_return_to_go_less_that_of_the_others_has_exactly_the_gradient_of_the_mean_total() -> None:
    assert not check_advantage(return_to_go).findings


def bound(
    groups: list[list[dict[str, Any]]], *, weights: tuple[float, float] = (1.0, 1.0), **options: Any
) -> Advantages:
    """The advantages of rollouts: `turns` of the first reward, its `score` (default: their sum), and `liked`."""
    rows = [row for group in groups for row in group]
    outcomes = {
        "played": [
            Outcome("failure", None, "it broke")
            if row.get("failed")
            else Outcome("score", row.get("score", sum(row["turns"])), turns=tuple(row["turns"]))
            for row in rows
        ],
        "liked": [Outcome("abstain") if row.get("liked") is None else Outcome("score", row["liked"]) for row in rows],
    }
    rewards = [BoundReward(played, "mine", weight=weights[0]), BoundReward(liked, "mine", weight=weights[1])]
    way = BoundAdvantage(return_to_go, "mine", options)
    return advantages_of(outcomes, rewards, len(groups[0]), way, CPU, [len(row["turns"]) for row in rows])


def test_what_a_turn_is_worth_is_what_was_earned_from_there_on_beside_the_others() -> None:
    found = bound([[{"turns": [0, 1]}, {"turns": [0.5]}, {"turns": [0, 0, 3]}]])
    assert found.turns is not None
    assert found.turns.tolist() == [
        pytest.approx([1 - (0.5 + 3) / 2, 1 - 3, 0.0]),
        pytest.approx([0.5 - (1 + 3) / 2, 0.0, 0.0]),
        pytest.approx([3 - (1 + 0.5) / 2, 3 - 1, 3 - (1 + 0.5) / 2]),  # alone in its third turn: their last ones
    ]
    assert found.values.tolist() == pytest.approx([(-0.75 - 2) / 2, -1.5, (2.25 + 2 + 2.25) / 3])
    discounted = bound([[{"turns": [0, 1]}, {"turns": [0.5, 0.0]}]], discount=0.5)
    assert discounted.turns is not None
    assert discounted.turns.tolist() == [pytest.approx([0.5 - 0.5, 1.0]), pytest.approx([0.0, -1.0])]


def test_a_score_of_the_outcome_is_earned_in_the_last_turn_and_weights_count() -> None:
    found = bound(
        [[{"turns": [0.25, 0.0], "score": 1.0, "liked": 2.0}, {"turns": [0.0], "liked": 0.0}]], weights=(2, 3)
    )
    assert found.earned is not None
    assert found.earned[0].tolist() == pytest.approx([0.5, 1.5 + 6.0])
    assert found.earned[0].sum().item() == pytest.approx(found.totals[0].item())
    assert found.earned[1, 0].item() == 0.0
    assert math.isnan(found.earned[1, 1].item())


def test_failures_are_compared_with_nobody_and_abstentions_move_nobody() -> None:
    rows = [{"turns": [0, 1]}, {"turns": [1, 0]}, {"turns": [0, 0]}]
    without = bound([rows])
    failed = bound([[*rows, {"turns": [9, 9, 9], "failed": True}]])
    assert without.turns is not None
    assert failed.turns is not None
    assert failed.turns[:3, :2].tolist() == without.turns.tolist()
    assert failed.turns[3].tolist() == [0.0] * 3
    assert failed.trained.tolist() == [True] * 3 + [False]
    some = bound([[{**rows[0], "liked": 0.7}, {**rows[1], "liked": 0.7}, rows[2]]])  # who abstains has their mean
    assert some.turns is not None
    torch.testing.assert_close(some.turns, without.turns)


def test_equal_totals_are_a_signal_where_they_were_earned_in_other_turns() -> None:
    assert bound([[{"turns": [0, 1]}, {"turns": [1, 0]}], [{"turns": [0, 1]}] * 2]).alike.tolist() == [False, True]
    assert bound([[{"turns": [1]}, {"turns": [0, 1]}]]).no_signal == 1.0


def test_turns_whose_advantages_cancel_out_teach_all_the_same() -> None:
    found = bound([[{"turns": [2, 0]}, {"turns": [0, 1]}], [{"turns": [1, 0]}, {"turns": [1, 0]}]])
    assert found.turns is not None
    assert found.turns[:2].tolist() == [pytest.approx([1.0, -1.0]), pytest.approx([-1.0, 1.0])]
    assert found.values.tolist() == [0.0] * 4
    assert found.teaches.tolist() == [True, True, False, False]
    completions = tuple(Completion("x", token_ids=(1, 2, 3), turns=2) for _ in range(4))
    batch = Batch(1, completions, {}, found, 2, 0.0, 0.0)
    assert sampling_metrics(batch, len(batch.completions), filled=False)["sampling/taught_nothing"] == 0.5


def test_an_advantage_that_is_no_number_is_not_taken_for_none() -> None:
    found = bound([[{"turns": [1e308, 1e308], "score": 0.0}, {"turns": [0.0, 0.0]}]])
    assert found.teaches.all()


def test_an_advantage_of_turns_may_be_one_for_each_completion_and_nothing_else() -> None:
    outcomes = {"played": [Outcome("score", 1.0, turns=(0.5, 0.5)), Outcome("score", 0.0, turns=(0.0, 0.0))]}

    def worth(value: Callable[[GroupScores], torch.Tensor]) -> Advantages:
        spec = advantage(version=1, name="mine", turns=True)(lambda scores: value(scores))
        return advantages_of(outcomes, [BoundReward(played, "mine")], 2, BoundAdvantage(spec, "mine"), CPU, [2, 2])

    found = worth(lambda scores: scores.totals)
    assert found.turns is None
    assert found.values.tolist() == [1.0, 0.0]
    with pytest.raises(PluginError, match=r"shape \(1, 2, 3\) for totals of shape \(1, 2\) of 2 turns"):
        worth(lambda scores: scores.totals[:, :, None].expand(-1, -1, 3))


def test_tokens_learn_from_their_own_turn() -> None:
    counted = torch.tensor([[1, 1, 0, 0, 1, 0, 1, 1], [0, 1, 1, 0, 0, 0, 0, 0], [0] * 8])
    found = of_tokens(torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0], [5.0, 0.0, 0.0]]), counted, [3, 1, 1])
    assert found.tolist() == [[1, 1, 0, 0, 2, 0, 3, 3], [0, 4, 4, 0, 0, 0, 0, 0], [0] * 8]


@pytest.mark.parametrize(
    ("tokens", "turns"), [([1, 1, 0, 0, 1, 1], 3), ([1, 1, 1, 1, 1, 1], 3), ([1, 0, 1, 0, 1, 0], 2)]
)
def test_a_turn_without_tokens_of_its_own_gives_its_advantage_to_no_other(tokens: list[int], turns: int) -> None:
    with pytest.raises(RunError, match=f"rollout 0 of this batch has {turns} turns"):
        of_tokens(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([tokens]), [turns])


@loss(version=1, average="batch")
def first_turn_alone(tokens: LossTokens) -> TokenCosts:
    return TokenCosts(-tokens.ratio() * tokens.advantages[:, :1])


@loss(version=1, average="batch")
def token_before(tokens: LossTokens) -> TokenCosts:
    return TokenCosts(-tokens.ratio() * tokens.advantages.roll(1, dims=1))


def test_a_loss_that_reads_the_advantage_of_another_token_is_found_out_wherever_that_stands() -> None:
    assert not takes_turns(BoundLoss(first_turn_alone, "mine"))
    assert not takes_turns(BoundLoss(token_before, "mine"))


def test_losses_in_which_turns_learn_from_each_other_are_refused() -> None:
    options = {"cispo": {"epsilon_high": 5.0}}
    mixed = {spec.name for spec in grpo_losses() if not takes_turns(BoundLoss(spec, "", options.get(spec.name, {})))}
    assert mixed == {"gspo", "luspo", "gmpo"}
    host = Host.discover()
    tree: dict[str, Any] = {"env": "guess", "loss": {"type": "gspo", "advantage": "return_to_go"}}
    with pytest.raises(UsageError, match="loss 'gspo' has one ratio for all tokens"):
        bind_objective(parse_config(tree), host)
    tree = {"env": "guess", "loss": {"advantage": "return_to_go"}, "train": {"head": "trl"}}
    with pytest.raises(UsageError, match=r"train\.head=trl takes one advantage"):
        bind_objective(parse_config(tree), host)


@pytest.mark.parametrize(
    ("turns", "problem"),
    [
        ([1.0], "1 turns for a rollout of 2"),
        ([1.0, math.nan], "nan for a turn"),
        ([1.0, True], "True for a turn"),
        ([1.0, 10**400], "for a turn"),
        ([1.0, Fraction(10**400)], "for a turn"),
        ("12", "turns that are a str"),
        ({1, 2}, "turns that are a set"),
    ],
)
def test_scores_of_turns_that_are_none_are_failures(turns: Any, problem: str) -> None:
    read = Reader(BoundReward(played, "mine")).read(Scored(1.0, turns=turns), 0, 0.0, 2)
    assert (read.kind, problem in str(read.reason)) == ("failure", True)


def test_a_metric_that_no_float_can_hold_is_a_failure_too() -> None:
    read = Reader(BoundReward(played, "mine")).read(Scored(1.0, metrics={"large": 10**400}), 0, 0.0, 2)
    assert (read.kind, "large" in str(read.reason)) == ("failure", True)


def test_an_abstention_has_no_turns() -> None:
    read = Reader(BoundReward(played, "mine")).read(Scored(None, turns=[1.0, 0.0]), 0, 0.0, 2)
    assert isinstance(read, Outcome)
    assert (read.kind, read.turns) == ("abstain", None)


TOLD = """
from grpo import Completion, Scored, reward

@reward(version=1, isolation="{isolation}")
def told(completion: Completion) -> Scored:
    each = [len(one["content"]) % 5 / 5 for one in completion.messages if one["role"] == "assistant"]
    return Scored(sum(each) + 0.5, turns=each)

@reward(version=1, isolation="{isolation}")
def length(completion: str) -> float:
    return len(completion) % 3 / 3
"""


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["process", pytest.param("inline", marks=pytest.mark.nightly)])
def test_a_run_trains_each_turn_with_its_own_and_writes_both_down(tmp_path: Path, isolation: str) -> None:
    from grpo import train

    (tmp_path / "mine.py").write_text(TOLD.format(isolation=isolation))
    run = train(
        env="guess",
        rewards=["environment", f"{tmp_path}/mine.py:told", f"{tmp_path}/mine.py:length"],
        advantage="return_to_go",
        steps=2,
        prompts_per_step=2,
        group_size=4,
        max_completion_length=8,
        evaluation={"size": 0},
        rollout={"dynamic": 2.0},
        out=tmp_path / "run",
    )
    rows = [row for step in (1, 2) for row in read_rollouts(RunDir(run.path), step)]
    several = [row for row in rows if len(row["turn_rewards"]) > 1]
    assert several
    for row in rows:
        assert sum(row["turn_rewards"]) == pytest.approx(row["reward"], abs=1e-4)
        assert sum(row["turn_advantages"]) / len(row["turn_advantages"]) == pytest.approx(row["advantage"], abs=1e-4)
    assert any(len({round(one, 5) for one in row["turn_advantages"]}) > 1 for row in several)
    for step in (1, 2):
        of_tokens = read_trained(RunDir(run.path), step)
        for number, row in enumerate(read_rollouts(RunDir(run.path), step)):
            if number in of_tokens:
                in_turns = [worth for worth, _ in groupby(of_tokens[number].advantages)]
                assert in_turns == pytest.approx([worth for worth, _ in groupby(row["turn_advantages"])], abs=1e-3)
