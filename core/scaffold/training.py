"""The Python files of a new package with a loss or an advantage, as `string.Template`s: working examples to rewrite.

The fields are those of core/scaffold/texts.py.
"""

LOSS = '''\
"""The loss $name: tokens in, what each of them costs out.

Keep the imports light: every grpo command that lists plugins makes them, and tensors have all methods that are needed.
The trainer leaves out what does not count, averages, adds the KL term and corrects for a rollout engine.
"""

from __future__ import annotations

from grpo import LossSpec, LossTokens, TokenCosts, hookimpl, loss

grpo_contract = $contract


@loss(version=1, average="batch")
def $name(tokens: LossTokens, *, epsilon: float = 0.2) -> TokenCosts:
    """-min(r A, clip(r, 1 - epsilon, 1 + epsilon) A), with r the ratio of the policy to the one that sampled.

    Args:
        tokens: log-probabilities [B, T], advantages [B, 1] and a mask [B, T].
        epsilon: how far a ratio may be from 1 before its token pulls no further.
    """
    ratio = tokens.ratio()
    bounded = ratio.clamp(1 - epsilon, 1 + epsilon)
    return TokenCosts(
        costs=-(ratio * tokens.advantages).minimum(bounded * tokens.advantages),
        low=(ratio < 1 - epsilon) & (tokens.advantages < 0),
        high=(ratio > 1 + epsilon) & (tokens.advantages > 0),
    )


@hookimpl
def grpo_losses() -> list[LossSpec]:
    """Offers the loss to grpo."""
    return [$name]
'''

LOSS_TEST = '''\
"""The loss keeps what every loss promises, and clips."""

from __future__ import annotations

import torch
from grpo import Host, LossTokens, check_loss

from $package import $name


def test_it_keeps_what_a_loss_promises() -> None:
    report = check_loss($name)
    assert report.ok, str(report)


def test_a_token_that_went_too_far_pulls_no_further() -> None:
    logps = torch.tensor([[0.0, -1.0]], requires_grad=True)
    old = torch.tensor([[-0.5, -1.0]])  # the first token is 1.6 times as probable as it was
    found = $name(LossTokens(logps, old, mask=torch.ones(1, 2), advantages=torch.ones(1, 1)))
    (gradient,) = torch.autograd.grad(found.costs.sum(), logps)
    assert gradient.tolist() == [[0.0, -1.0]]
    assert found.high is not None
    assert found.high.tolist() == [[True, False]]


def test_grpo_finds_it() -> None:
    assert Host.discover().loss("$distribution/$name@1").spec is $name
'''

ADVANTAGE = '''\
"""Computes the advantage $name from the scores of groups.

Keep the imports light: every grpo command that lists plugins makes them, and tensors have all methods that are needed.
Completions that a reward failed on have the total NaN; what is returned for them does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo import AdvantageSpec, GroupScores, advantage, hookimpl

if TYPE_CHECKING:
    import torch

grpo_contract = $contract


@advantage(version=1, unbiased=True)
def $name(scores: GroupScores, *, scale: float = 1.0) -> torch.Tensor:
    """The total of a completion less the mean of the others of its group, times a number.

    Args:
        scores: totals [groups, G] of the rewards, and the scores [groups, G, R] of each.
        scale: the number.
    """
    totals = scores.totals
    number = (~totals.isnan()).sum(dim=1, keepdim=True)
    centred = totals - totals.nanmean(dim=1, keepdim=True)
    return scale * centred * number / (number - 1).clamp(min=1)


@hookimpl
def grpo_advantages() -> list[AdvantageSpec]:
    """Offers the advantage to grpo."""
    return [$name]
'''

ADVANTAGE_TEST = '''\
"""The advantage keeps what every advantage promises, and compares with the others."""

from __future__ import annotations

import pytest
import torch
from grpo import GroupScores, Host, check_advantage

from $package import $name


def test_it_keeps_what_an_advantage_promises() -> None:
    report = check_advantage($name)
    assert report.ok, str(report)


def test_a_completion_is_compared_with_the_others() -> None:
    totals = torch.tensor([[1.0, 0.0, 0.5, float("nan")]])
    [found] = $name(GroupScores(totals, totals[..., None], torch.ones(1))).tolist()
    assert found[:3] == pytest.approx([0.75, -0.75, 0.0])


def test_grpo_finds_it() -> None:
    assert Host.discover().advantage("$distribution/$name@1").spec is $name
'''
