"""Checks of losses and advantages: ours keep every relation, and each planted fault is found by its name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo import GroupScores, LossTokens, TokenCosts, advantage, check_advantage, check_loss, loss
from grpo.core.train.advantages import grpo_advantages
from grpo.core.train.advantages.estimators import deviation
from grpo.core.train.losses import grpo_losses
from grpo.plugins._spec.binding import BoundAdvantage, BoundLoss

NOTED = {"top_entropy": [("note", "other completions")]}
REQUIRED: dict[str, dict[str, Any]] = {"cispo": {"epsilon_high": 5.0}, "pass_at_k": {"k": 2}}


@pytest.mark.parametrize("name", [spec.name for spec in grpo_losses()])
def test_every_built_in_loss_keeps_all_relations(name: str) -> None:
    [spec] = [spec for spec in grpo_losses() if spec.name == name]
    findings = check_loss(BoundLoss(spec, "grpo-kit", REQUIRED.get(name, {}))).findings
    assert [(one.severity, one.relation) for one in findings] == NOTED.get(name, []), findings


@pytest.mark.parametrize("name", [spec.name for spec in grpo_advantages()])
def test_every_built_in_advantage_keeps_all_relations(name: str) -> None:
    [spec] = [spec for spec in grpo_advantages() if spec.name == name]
    report = check_advantage(BoundAdvantage(spec, "grpo-kit", REQUIRED.get(name, {})))
    assert not [finding for finding in report.findings if finding.severity != "note"], str(report)
    notes = {finding.relation for finding in report.findings}
    assert ("expected gradient" in notes) == (name not in ("rloo", "return_to_go"))
    assert ("shift" in notes) == (name == "maxrl")


def test_the_group_mean_without_a_scale_has_the_gradient_of_the_mean_total() -> None:
    [spec] = [spec for spec in grpo_advantages() if spec.name == "group_mean"]
    assert not check_advantage(BoundAdvantage(spec, "grpo-kit", {"scale": "none"})).findings


def centred(totals: torch.Tensor) -> torch.Tensor:
    return totals - totals.nanmean(dim=1, keepdim=True)


@advantage(version=1, unbiased=True)
def own_scale(scores: GroupScores) -> torch.Tensor:
    return centred(scores.totals) / (0.1 + scores.totals.nan_to_num(0.0))


@advantage(version=1, unbiased=True)
def softened_by_spread(scores: GroupScores) -> torch.Tensor:
    """Less than three degrees off."""
    return centred(scores.totals) / (1.0 + deviation(scores.totals, dim=1)[:, None])


@advantage(version=1)
def failure_as_zero(scores: GroupScores) -> torch.Tensor:
    return centred(scores.totals.nan_to_num(0.0))


@advantage(version=1)
def divided_by_nothing(scores: GroupScores) -> torch.Tensor:
    values = centred(scores.totals)
    return values / values.square().nansum(dim=1, keepdim=True).sqrt()


@advantage(version=1)
def by_place(scores: GroupScores) -> torch.Tensor:
    values = centred(scores.totals)
    return values * torch.arange(1, values.shape[1] + 1)


@advantage(version=1)
def reversed_sign(scores: GroupScores) -> torch.Tensor:
    return -centred(scores.totals)


@advantage(version=1)
def first_is_different(scores: GroupScores) -> torch.Tensor:
    values = centred(scores.totals).clone()
    values[:, 0] += 0.1
    return values


@advantage(version=1)
def abstention_as_zero(scores: GroupScores) -> torch.Tensor:
    return centred(scores.totals) + 0.1 * scores.scores.isnan().sum(dim=2)


@advantage(version=1)
def drawn(scores: GroupScores) -> torch.Tensor:
    return centred(scores.totals) + 0.01 * torch.rand(scores.totals.shape)


@advantage(version=1)
def one_for_all(scores: GroupScores) -> torch.Tensor:
    return scores.totals.nanmean(dim=1)


@pytest.mark.parametrize(
    ("planted", "relation"),
    [
        (own_scale, "expected gradient"),
        (softened_by_spread, "expected gradient"),
        (failure_as_zero, "failures"),
        (divided_by_nothing, "equal scores"),
        (by_place, "permutation"),
        (reversed_sign, "order"),
        (reversed_sign, "expected gradient"),
        (first_is_different, "equal scores"),
        (abstention_as_zero, "abstentions"),
        (drawn, "same again"),
        (one_for_all, "raises"),
    ],
    ids=lambda it: getattr(it, "name", it),
)
def test_a_planted_fault_of_an_advantage_is_found(planted: object, relation: str) -> None:
    report = check_advantage(planted)  # type: ignore[arg-type]
    assert relation in {finding.relation for finding in report.of("error")}, str(report)


@loss(version=1)
def sign_lost(tokens: LossTokens) -> torch.Tensor:
    return -tokens.advantages.abs() * tokens.logps


@loss(version=1)
def pays_padding(tokens: LossTokens) -> torch.Tensor:
    length = tokens.logps.mean(dim=1, keepdim=True)
    return -tokens.advantages * length


@loss(version=1)
def centred_by_others(tokens: LossTokens) -> torch.Tensor:
    return -(tokens.advantages - tokens.advantages.mean()) * tokens.logps


@loss(version=1)
def regularised(tokens: LossTokens) -> torch.Tensor:
    return -tokens.advantages * tokens.logps + 0.01 * tokens.logps.square()


@loss(version=1)
def no_number(tokens: LossTokens) -> torch.Tensor:
    return -tokens.advantages * tokens.logps / (tokens.advantages.abs() > 0)


@loss(version=1)
def rounded(tokens: LossTokens) -> torch.Tensor:
    far = 1e8 * tokens.advantages
    return -((tokens.ratio() + far) - far) * tokens.logps.exp() * tokens.advantages


@loss(version=1)
def averaged_already(tokens: LossTokens) -> torch.Tensor:
    return -(tokens.advantages * tokens.logps).sum()


@pytest.mark.parametrize(
    ("planted", "relation"),
    [
        (sign_lost, "direction"),
        (pays_padding, "padding"),
        (centred_by_others, "no advantage"),
        (centred_by_others, "other completions"),
        (regularised, "no advantage"),
        (no_number, "finite"),
        (rounded, "float64"),
        (averaged_already, "raises"),
    ],
    ids=lambda it: getattr(it, "name", it),
)
def test_a_planted_fault_of_a_loss_is_found(planted: object, relation: str) -> None:
    report = check_loss(planted)  # type: ignore[arg-type]
    assert relation in {finding.relation for finding in report.of("error")}, str(report)


def test_a_term_that_is_declared_and_an_unbounded_ratio_are_no_errors() -> None:
    @loss(version=1, every_row=True, entropies="gradient")
    def explores(tokens: LossTokens) -> TokenCosts:
        assert tokens.entropies is not None
        return TokenCosts(-tokens.advantages * tokens.ratio() - 0.01 * tokens.entropies)

    assert check_loss(explores).ok
