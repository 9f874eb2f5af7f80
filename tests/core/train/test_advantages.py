"""The built-in advantages beside their published formulas, by hand or by TRL's own code."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import pytest
import torch

from grpo.core.train.advantages import grpo_advantages
from grpo.core.train.advantages.compute import group_advantages
from grpo.plugins._spec.binding import BoundAdvantage

NAN = math.nan
BUILT_IN = {spec.name: spec for spec in grpo_advantages()}


def worth(name: str, groups: list[list[float]], **options: Any) -> list[list[float]]:
    """The advantages of groups with one reward; NaN is a failure."""
    totals = torch.tensor(groups, dtype=torch.float64)
    scores, bound = totals.view(-1, 1), BoundAdvantage(BUILT_IN[name], options=options)
    found = group_advantages(scores, scores[:, 0].isnan(), torch.ones(1), totals.shape[1], bound)
    return found.values.view(totals.shape).tolist()


def test_leave_one_out_compares_with_the_others() -> None:
    [found] = worth("rloo", [[1.0, 0.0, 0.5, NAN]])
    assert found == pytest.approx([1.0 - 0.25, 0.0 - 0.75, 0.5 - 0.5, 0.0])
    assert worth("rloo", [[1.0, NAN, NAN], [2.0, 2.0, 2.0]]) == [[0.0] * 3] * 2


def test_reinforce_plus_plus_has_one_scale_for_the_batch() -> None:
    groups = [[1.0, 0.0, 1.0], [4.0, 2.0, 0.0]]
    every = [score for group in groups for score in group]
    mean, spread = statistics.fmean(every), statistics.stdev(every)
    found = worth("reinforce_plus_plus", groups)
    assert list(itertools.chain(*found)) == pytest.approx([(score - mean) / (spread + 1e-4) for score in every])
    centred = [score - statistics.fmean(group) for group in groups for score in group]
    found = worth("reinforce_plus_plus", groups, baseline="group")
    assert list(itertools.chain(*found)) == pytest.approx(
        [score / (statistics.stdev(centred) + 1e-4) for score in centred]
    )


def test_maxrl_divides_by_the_mean() -> None:
    found = worth("maxrl", [[1.0, 0.0, 0.0, 0.0], [0.0] * 4, [1.0] * 4, [-1.0, 0.0, 0.0, 0.0]])
    assert found[0] == pytest.approx([3.0, -1.0, -1.0, -1.0])
    assert found[1:] == [[0.0] * 4] * 3


def test_maxrl_is_the_mean_score_function_of_those_who_are_right() -> None:
    """1/G sum A_i s_i is the mean of s_i over the right ones less that over all, for any s_i."""
    scores = [0.3, -1.2, 0.7, 2.0]
    [found] = worth("maxrl", [[1.0, 0.0, 1.0, 0.0]])
    estimate = sum(a * s for a, s in zip(found, scores, strict=True)) / 4
    assert estimate == pytest.approx((0.3 + 0.7) / 2 - sum(scores) / 4)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("right", range(6))
def test_pass_at_k_is_the_mean_over_all_subsets(k: int, right: int) -> None:
    """A subset passes where one of it is right; a member's worth is its subsets' mean, normalised as the paper does."""
    members = [1.0] * right + [0.0] * (5 - right)
    [found] = worth("pass_at_k", [[*members, NAN]], k=k)
    tries = min(k, 5)
    subsets = list(itertools.combinations(range(5), tries))
    passed = [float(any(members[i] for i in subset)) for subset in subsets]
    rate = statistics.fmean(passed)
    if rate in (0.0, 1.0):
        assert found == [0.0] * 6
        return
    spread = math.sqrt(rate * (1 - rate))
    own = [statistics.fmean([p for p, s in zip(passed, subsets, strict=True) if i in s]) for i in range(5)]
    assert found == pytest.approx([*((mean - rate) / spread for mean in own), 0.0])


def test_with_one_try_pass_at_k_is_the_group_mean_over_its_deviation() -> None:
    [found] = worth("pass_at_k", [[1.0, 0.0, 0.0, 0.0]], k=1)
    members = [1.0, 0.0, 0.0, 0.0]
    spread = statistics.pstdev(members)
    assert found == pytest.approx([(score - 0.25) / spread for score in members])
    assert worth("pass_at_k", [[0.6, 0.2, 0.2, 0.2]], k=1, passes=0.5) == [pytest.approx(found)]


@pytest.mark.slow
def test_gdpo_is_that_of_trl() -> None:
    from trl.trainer.utils import nanstd

    generator = torch.Generator().manual_seed(3)
    scores, weights = torch.randn(12, 2, generator=generator, dtype=torch.float64), torch.tensor([1.0, 0.3]).double()
    scores[4:8, 1] = 1.0  # a reward that says nothing about a group
    grouped = scores.view(3, 4, 2)
    each = (grouped - grouped.nanmean(dim=1, keepdim=True)) / (nanstd(grouped, dim=1, keepdim=True) + 1e-4)
    summed = (each.view(-1, 2) * weights).nansum(dim=1)
    expected = (summed - summed.nanmean()) / (nanstd(summed) + 1e-4)
    failed = torch.zeros(12, dtype=torch.bool)
    found = group_advantages(scores, failed, weights, 4, BoundAdvantage(BUILT_IN["gdpo"]))
    torch.testing.assert_close(found.values, expected.float(), rtol=1e-5, atol=1e-6)


def test_gdpo_keeps_mixes_apart_that_have_the_same_total() -> None:
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    failed = torch.zeros(4, dtype=torch.bool)
    for name, apart in (("group_mean", False), ("gdpo", True)):
        found = group_advantages(scores, failed, torch.ones(2), 4, BoundAdvantage(BUILT_IN[name]))
        assert bool(found.values[0] > found.values[1] + 0.1) == apart
