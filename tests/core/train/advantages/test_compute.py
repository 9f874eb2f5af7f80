"""Advantages: the published formula where every member is scored, and what abstentions and failures must not do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

import pytest
import torch

from grpo.core.train.advantages.compute import Advantages, group_advantages
from grpo.core.train.advantages.estimators import group_mean
from grpo.plugins._spec.binding import BoundAdvantage

NAN = math.nan
Scale = Literal["group", "batch", "none"]
SCALES: tuple[Scale, ...] = ("group", "batch", "none")


def advantages(
    rows: Sequence[Sequence[float]],
    group_size: int,
    *,
    failed: Sequence[int] = (),
    weights: Sequence[float] | None = None,
    scale: Scale = "group",
) -> Advantages:
    scores = torch.tensor(rows, dtype=torch.float64)
    marks = torch.tensor([number in failed for number in range(len(rows))])
    mean = BoundAdvantage(group_mean, options={"scale": scale})
    return group_advantages(scores, marks, torch.tensor(weights or [1.0] * scores.shape[1]), group_size, mean)


@pytest.mark.parametrize("scale", SCALES)
def test_without_abstentions_and_failures_it_is_the_published_formula(scale: Scale) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    weights = [1.0, 0.5, -2.0]
    found = advantages(scores.tolist(), 4, weights=weights, scale=scale)
    totals = [math.fsum(w * s for w, s in zip(weights, row, strict=True)) for row in scores.tolist()]
    expected = []
    for i, total in enumerate(totals):
        group = totals[i // 4 * 4 : i // 4 * 4 + 4]
        divisor = {"group": statistics.stdev(group) + 1e-4, "batch": statistics.stdev(totals) + 1e-4, "none": 1.0}[
            scale
        ]
        expected.append((total - statistics.fmean(group)) / divisor)
    assert found.values.tolist() == pytest.approx(expected, rel=1e-6)
    assert found.totals.tolist() == pytest.approx(totals, rel=1e-6)
    assert found.group_std.tolist() == pytest.approx([statistics.stdev(totals[i : i + 4]) for i in (0, 4, 8)], rel=1e-6)
    assert found.trained.all()
    assert found.no_signal == 0.0


@pytest.mark.parametrize("scale", SCALES)
def test_a_failure_is_outside_the_mean_and_the_deviation_of_its_group(scale: Scale) -> None:
    found = advantages([[1.0], [2.0], [4.0], [99.0]], 4, failed=[3], scale=scale)
    alone = advantages([[1.0], [2.0], [4.0]], 3, scale=scale)
    assert found.values.tolist() == pytest.approx([*alone.values.tolist(), 0.0])
    assert found.trained.tolist() == [True, True, True, False]
    assert math.isnan(found.totals[3])
    assert found.group_std.tolist() == pytest.approx(alone.group_std.tolist())


def test_a_failure_of_one_reward_silences_the_others_on_that_completion() -> None:
    found = advantages([[1.0, 5.0], [2.0, 5.0], [NAN, 500.0]], 3, failed=[2])
    alone = advantages([[1.0, 5.0], [2.0, 5.0]], 2)
    assert found.values.tolist() == pytest.approx([*alone.values.tolist(), 0.0])


def test_an_abstention_moves_nobody() -> None:
    with_it = advantages([[1.0, 10.0], [3.0, NAN], [2.0, 14.0]], 3, scale="none")
    # The abstaining reward counts as its mean over the group, 12, for the member that it did not score.
    assert with_it.totals.tolist() == pytest.approx([11.0, 15.0, 16.0])
    lonely = advantages([[1.0, NAN], [3.0, NAN], [2.0, NAN]], 3)
    without = advantages([[1.0], [3.0], [2.0]], 3)
    assert lonely.values.tolist() == without.values.tolist()


def test_a_lone_score_among_abstentions_gives_no_advantage() -> None:
    # An abstention that counted as 0 would reward the only scored member, or punish it.
    for score in (-7.0, 7.0):
        found = advantages([[NAN], [score], [NAN], [NAN]], 4)
        assert found.values.tolist() == [0.0] * 4
        assert found.no_signal == 1.0


def test_where_every_reward_abstains_nothing_is_learned() -> None:
    found = advantages([[NAN, NAN], [1.0, 2.0], [3.0, 5.0], [NAN, NAN]], 4)
    alone = advantages([[1.0, 2.0], [3.0, 5.0]], 2)
    assert found.values.tolist() == pytest.approx([0.0, *alone.values.tolist(), 0.0])
    assert found.trained.all(), "an abstention stays in the KL term; only failures leave it"
    assert [math.isnan(total) for total in found.totals] == [True, False, False, True]
    nobody = advantages([[NAN], [NAN]], 2)
    assert nobody.values.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("scale", SCALES)
def test_a_group_of_failures_leaves_the_other_groups_alone(scale: Scale) -> None:
    found = advantages([[5.0], [6.0], [1.0], [2.0]], 2, failed=[0, 1], scale=scale)
    assert found.values[:2].tolist() == [0.0, 0.0]
    assert found.values[2:].tolist() == pytest.approx(advantages([[1.0], [2.0]], 2, scale=scale).values.tolist())
    assert found.group_std[0] == 0.0
    assert found.no_signal == 0.5


@pytest.mark.parametrize("scale", ["group", "none"])
def test_a_constant_added_to_what_one_reward_gives_a_group_changes_nothing(scale: Scale) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        scores = torch.randn(8, 2, generator=generator, dtype=torch.float64)
        scores[torch.rand(8, 2, generator=generator) < 0.3] = NAN
        failed = (torch.rand(8, generator=generator) < 0.2).nonzero()[:, 0].tolist()
        moved = scores.clone()
        moved[:4, 0] += 3.0
        before, after = (advantages(given.tolist(), 4, failed=failed, scale=scale) for given in (scores, moved))
        assert after.values.tolist() == pytest.approx(before.values.tolist(), abs=1e-5)
        assert after.group_std.tolist() == pytest.approx(before.group_std.tolist(), abs=1e-6)


def test_advantages_of_a_group_sum_to_zero_and_follow_the_order_of_its_totals() -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(6, 1, generator=generator, dtype=torch.float64)
    found = advantages(scores.tolist(), 6)
    assert found.values.sum().item() == pytest.approx(0.0, abs=1e-6)
    assert found.values.argsort().tolist() == scores[:, 0].argsort().tolist()


@pytest.mark.parametrize("score", [0.0, 0.1, -3.3, 1e6])
def test_equal_scores_carry_no_signal(score: float) -> None:
    found = advantages([[score, 0.1]] * 8, 8, weights=[0.3, 0.7])
    assert found.values.tolist() == pytest.approx([0.0] * 8, abs=1e-4)
    assert found.no_signal == 1.0
