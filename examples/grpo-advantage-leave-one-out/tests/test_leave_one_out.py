"""The advantage keeps what every advantage promises, and compares with the others."""

from __future__ import annotations

import pytest
import torch
from grpo_advantage_leave_one_out import leave_one_out

from grpo import GroupScores, Host, check_advantage


def test_it_keeps_what_an_advantage_promises() -> None:
    report = check_advantage(leave_one_out)
    assert report.ok, str(report)


def test_a_completion_is_compared_with_the_others() -> None:
    totals = torch.tensor([[1.0, 0.0, 0.5, float("nan")]])
    [advantages] = leave_one_out(GroupScores(totals, totals[..., None], torch.ones(1))).tolist()
    assert advantages[:3] == pytest.approx([0.75, -0.75, 0.0])


def test_grpo_finds_it() -> None:
    assert Host.discover().advantage("grpo-advantage-leave-one-out/leave_one_out").spec is leave_one_out
