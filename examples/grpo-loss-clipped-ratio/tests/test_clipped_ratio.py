"""The loss keeps what every loss promises, and clips."""

from __future__ import annotations

import torch
from grpo_loss_clipped_ratio import clipped_ratio

from grpo import Host, LossTokens, TokenCosts, check_loss


def test_it_keeps_what_a_loss_promises() -> None:
    report = check_loss(clipped_ratio)
    assert report.ok, str(report)


def test_a_token_that_went_too_far_pulls_no_further() -> None:
    logps = torch.tensor([[0.0, -1.0]], requires_grad=True)
    old = torch.tensor([[-0.5, -1.0]])  # the first token is 1.6 times as probable as it was
    costs = clipped_ratio(LossTokens(logps, old, mask=torch.ones(1, 2), advantages=torch.ones(1, 1)))
    assert isinstance(costs, TokenCosts)
    (gradient,) = torch.autograd.grad(costs.costs.sum(), logps)
    assert gradient.tolist() == [[0.0, -1.0]]
    assert costs.high is not None
    assert costs.high.tolist() == [[True, False]]


def test_grpo_finds_it() -> None:
    assert Host.discover().loss("grpo-loss-clipped-ratio/clipped_ratio").spec is clipped_ratio
