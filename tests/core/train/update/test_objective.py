"""Every objective against its definition written out token by token in float64, and what must not change it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from grpo.core.config.sections import Correction
from grpo.core.train.losses import grpo_losses
from grpo.core.train.update.metrics import update_sums
from grpo.core.train.update.objective import (
    Counts,
    Objective,
    PassLoss,
    Tokens,
    importance_weights,
    is_per_token,
    policy_loss,
)
from grpo.plugins._spec.binding import BoundLoss
from grpo.plugins.errors import PluginError
from grpo.plugins.specs import LossSpec
from grpo.plugins.training import LossTokens, TokenCosts
from grpo.plugins.training_decorators import loss as make_loss

BUILT_IN = {spec.name: spec for spec in grpo_losses()}
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "gspo")


def bound(name: str, **options: Any) -> BoundLoss:
    """A built-in loss with those of the options that it has."""
    known = {option.name for option in BUILT_IN[name].options}
    return BoundLoss(BUILT_IN[name], "grpo-kit", {key: value for key, value in options.items() if key in known})


B, T = 4, 5
LENGTHS = (5, 3, 0, 1)  # the third completion is masked out
LONGEST, ACCUMULATION, BATCH_TOKENS = 8, 2, 31.0


def tokens(*, old: bool, reference: bool, importance: str | None) -> Tokens:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    logps = -draw(B, T).abs() - 0.1
    apart = draw(B, T, scale=0.4)
    weights = {"token": (B, T), "sequence": (B, 1), None: None}[importance]
    return Tokens(
        logps=logps.requires_grad_(),
        mask=torch.tensor([[1] * n + [0] * (T - n) for n in LENGTHS]),
        advantages=torch.tensor([1.5, -0.7, 2.0, -1.0], dtype=torch.float64),
        old_logps=logps.detach() + apart if old else None,
        ref_logps=logps.detach() + draw(B, T, scale=0.3) if reference else None,
        importance=draw(*weights).abs() if weights else None,
    )


def counts(given: Tokens) -> Counts:
    return Counts(B, given.mask.sum(), torch.tensor(BATCH_TOKENS), LONGEST, ACCUMULATION)


def by_hand(objective: Objective, given: Tokens, high: float, delta: float | None, level: str) -> float:
    """The definitions, one token at a time."""
    rows: list[list[float]] = []
    for row in range(B):
        length = LENGTHS[row]
        new = given.logps[row].tolist()
        old = new if given.old_logps is None else given.old_logps[row].tolist()
        apart = [n - o for n, o in zip(new, old, strict=True)]
        mean = sum(apart[:length]) / max(length, 1)
        a, costs = float(given.advantages[row]), []
        for t in range(length):
            r = math.exp(mean if level == "sequence" else apart[t])
            if objective.loss.name == "cispo":
                cost = -min(r, high) * a * new[t]
            else:
                clipped = min(max(r, 1 - 0.2), 1 + high)
                limited = r if delta is None else min(r, delta)
                cost = -min(limited * a, clipped * a)
            if given.importance is not None:
                cost *= float(given.importance[row].expand(T)[t])
            if given.ref_logps is not None:
                d = float(given.ref_logps[row, t]) - new[t]
                cost += objective.beta * (r if objective.corrects_kl else 1.0) * (math.exp(d) - d - 1)
            costs.append(cost)
        rows.append(costs)
    total = sum(map(sum, rows))
    if objective.loss.name in ("grpo", "gspo"):
        return sum(sum(c) / max(len(c), 1) for c in rows) / B / ACCUMULATION
    return (
        total
        / {
            "bnpo": sum(LENGTHS) * ACCUMULATION,
            "dr_grpo": B * LONGEST * ACCUMULATION,
            "dapo": BATCH_TOKENS,
            "cispo": BATCH_TOKENS,
        }[objective.loss.name]
    )


CASES = [
    (name, level, beta, delta, weights, old)
    for name, level, (beta, delta), weights, old in itertools.product(
        LOSSES,
        ("token", "sequence"),
        ((0.0, None), (0.3, None), (0.0, 1.4)),
        (None, "token", "sequence"),
        (True, False),
    )
    if not (name == "cispo" and (level == "sequence" or delta)) and not (name == "gspo" and level == "token")
]


@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_those_of_the_definition(name: str) -> None:
    for case in CASES:
        if case[0] != name:
            continue
        _, level, beta, delta, weights, old = case
        high = 1.3 if name == "cispo" else 0.25
        corrects = delta is None  # both ways of the KL term, with either level
        chosen = bound(name, epsilon_high=high, delta=delta, importance_sampling_level=level)
        objective = Objective(chosen, beta, corrects)
        given = tokens(old=old, reference=beta > 0, importance=weights)
        loss = policy_loss(objective, given, counts(given)).loss
        assert loss.item() == pytest.approx(by_hand(objective, given, high, delta, level), rel=1e-12), case
        if old and name != "cispo":  # numbers for a gradient: only where no part of the value is held fixed
            (found,) = torch.autograd.grad(loss, given.logps)
            numeric = torch.zeros_like(found)
            for row, t in itertools.product(range(B), range(T)):
                values = []
                for step in (1e-6, -1e-6):
                    moved = given.logps.detach().clone()
                    moved[row, t] += step
                    same = Tokens(
                        moved, given.mask, given.advantages, given.old_logps, given.ref_logps, given.importance
                    )
                    values.append(by_hand(objective, same, high, delta, level))
                numeric[row, t] = (values[0] - values[1]) / 2e-6
            torch.testing.assert_close(found, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", LOSSES[:5])
@pytest.mark.parametrize("correction", ["none", "token_truncate"])
def test_per_token_the_coefficients_follow_from_each_log_probability_alone(name: str, correction: Correction) -> None:
    """So that a kernel can ask for those of some rows before it knows the others."""
    for old in (False, True):
        given = tokens(old=old, reference=True, importance=None)
        loss = PassLoss(
            Objective(bound(name, epsilon_high=0.3), 0.1),
            counts(given),
            mask=given.mask,
            advantages=given.advantages,
            old_logps=given.old_logps,
            ref_logps=given.ref_logps,
            sampled=given.logps.detach() + 0.2,
            correction=correction,
            cap=1.1,
        )
        assert is_per_token(loss.objective.loss, correction)
        loss(given.logps)[0].loss.backward()
        some = torch.zeros(B, T, dtype=torch.bool)
        some[0, 1:4] = some[1, 0] = some[3, 0] = True
        found = loss.coefficients(given.logps.detach().masked_fill(~some, 0.0))
        assert given.logps.grad is not None
        assert given.logps.grad[some].any()
        assert torch.equal(found[some], given.logps.grad[some])
    for whole in ("sequence_mask", "geometric_truncate"):
        assert not is_per_token(bound(name, epsilon_high=0.3), whole)
    assert not is_per_token(bound("gspo"), correction)
    assert not is_per_token(bound("dapo", importance_sampling_level="sequence"), correction)


def test_on_policy_the_gradient_is_the_policy_gradient() -> None:
    """With a ratio of 1, every token's gradient is its advantage over the number of tokens, whatever is clipped."""
    for name in ("dapo", "cispo"):
        given = tokens(old=False, reference=False, importance=None)
        loss = policy_loss(Objective(bound(name, epsilon_high=5.0)), given, counts(given)).loss
        (found,) = torch.autograd.grad(loss, given.logps)
        torch.testing.assert_close(found, -given.advantages[:, None] * given.mask / BATCH_TOKENS)


@pytest.mark.parametrize("name", LOSSES)
def test_rows_without_an_advantage_can_be_left_out(name: str) -> None:
    given = tokens(old=True, reference=False, importance=None)
    objective = Objective(bound(name, epsilon_high=0.3))
    advantages = given.advantages.clone()
    advantages[1] = 0.0
    whole = Tokens(given.logps, given.mask, advantages, given.old_logps)
    kept = [0, 3]
    assert given.old_logps is not None
    part = Tokens(given.logps[kept], given.mask[kept], advantages[kept], given.old_logps[kept])
    everyone = counts(given)
    gradients = [torch.autograd.grad(policy_loss(objective, t, everyone).loss, given.logps)[0] for t in (whole, part)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_of_masked_rows_is_zero_and_finite(name: str) -> None:
    given = tokens(old=True, reference=True, importance="token")
    masked = Tokens(given.logps, given.mask * 0, given.advantages, given.old_logps, given.ref_logps, given.importance)
    loss = policy_loss(Objective(bound(name, epsilon_high=0.3), 0.1), masked, counts(masked)).loss
    (gradient,) = torch.autograd.grad(loss, given.logps)
    assert loss.item() == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_what_stands_outside_of_the_mask_is_in_no_sum_and_in_no_gradient(name: str, junk: float) -> None:
    given = tokens(old=True, reference=True, importance=None)
    given = replace(given, entropies=given.logps.detach().abs())
    outside = given.mask == 0
    options = {"epsilon_high": 0.3}
    objective = Objective(bound(name, **options), beta=0.1)
    clean = policy_loss(objective, given, counts(given))
    (wanted,) = torch.autograd.grad(clean.loss, given.logps)
    leaf = given.logps.detach().masked_fill(outside, junk).requires_grad_()
    spoilt = {
        field: getattr(given, field).masked_fill(outside, junk) for field in ("old_logps", "ref_logps", "entropies")
    }
    dirty = policy_loss(objective, replace(given, logps=leaf, **spoilt), counts(given))
    (found,) = torch.autograd.grad(dirty.loss, leaf)
    assert torch.equal(dirty.loss, clean.loss)
    assert torch.equal(found, wanted.masked_fill(outside, 0.0))


def test_a_loss_that_makes_nan_outside_of_the_mask_spoils_neither_average_nor_gradient_nor_metrics() -> None:
    @make_loss(version=1, average="completion")
    def entropic(tokens: LossTokens) -> TokenCosts:
        costs = tokens.logps.neg().log() * tokens.advantages / tokens.mask
        return TokenCosts(costs, metrics={"odd": costs})

    given = tokens(old=False, reference=False, importance=None)
    value = policy_loss(Objective(BoundLoss(entropic, "mine")), given, counts(given))
    (gradient,) = torch.autograd.grad(value.loss, given.logps)
    assert value.loss.isfinite()
    assert gradient.isfinite().all()
    assert gradient[given.mask == 0].eq(0).all()
    assert gradient[given.mask != 0].ne(0).all()
    assert update_sums(value, None, given.mask, None).isfinite().all()


def test_the_correction_weighs_what_the_engine_found_differently_probable() -> None:
    logps = torch.tensor([[-1.0, -2.0, -3.0]])
    sampled = torch.tensor([[-1.0, -3.0, float("nan")]])
    mask = torch.tensor([[1, 1, 1]])
    e = math.e

    def weights(correction: Any, cap: float) -> torch.Tensor | None:
        return importance_weights(logps, sampled, mask, correction, cap)

    assert weights("none", 2.0) is None
    torch.testing.assert_close(weights("token_truncate", 2.0), torch.tensor([[1.0, 2.0, 1.0]]))
    torch.testing.assert_close(weights("token_truncate", 9.0), torch.tensor([[1.0, e, 1.0]]))
    torch.testing.assert_close(weights("token_mask", 2.0), torch.tensor([[1.0, 0.0, 1.0]]))
    torch.testing.assert_close(weights("sequence_truncate", 9.0), torch.tensor([[e]]))
    torch.testing.assert_close(weights("sequence_mask", 2.0), torch.tensor([[0.0]]))
    torch.testing.assert_close(weights("geometric_truncate", 9.0), torch.tensor([[math.exp(1 / 3)]]))
    torch.testing.assert_close(weights("geometric_mask", 1.2), torch.tensor([[0.0]]))
    padded = importance_weights(logps, sampled, torch.tensor([[1, 0, 0]]), "sequence_truncate", 9.0)
    torch.testing.assert_close(padded, torch.tensor([[1.0]]))


def test_with_a_floor_the_mask_is_that_of_icepop() -> None:
    """M(k) = k within [0.5, 5], else 0."""
    ratios = torch.tensor([[0.4, 0.6, 4.0, 6.0]])
    mask = torch.ones(1, 4)
    found = importance_weights(ratios.log(), torch.zeros(1, 4), mask, "token_mask", 5.0, 0.5)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.6, 4.0, 0.0]]))
    found = importance_weights(ratios.log(), torch.zeros(1, 4), mask, "token_truncate", 5.0, 0.5)
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.6, 4.0, 5.0]]))
    product = importance_weights(ratios.log(), torch.zeros(1, 4), mask, "geometric_mask", 5.0, 0.5)
    torch.testing.assert_close(product, torch.tensor([[(0.4 * 0.6 * 4 * 6) ** 0.25]]))


def test_costs_of_another_shape_are_refused_by_name() -> None:
    @make_loss(version=1)
    def averaged(tokens: LossTokens) -> torch.Tensor:
        return -(tokens.advantages * tokens.logps).mean()

    given = tokens(old=False, reference=False, importance=None)
    with pytest.raises(PluginError, match=r"loss 'averaged' .* costs of shape \(\) for 4 completions of 5 tokens"):
        policy_loss(Objective(BoundLoss(averaged)), given, counts(given))


def test_a_loss_that_raises_is_named() -> None:
    def broken(tokens: LossTokens) -> torch.Tensor:
        raise ZeroDivisionError

    given = tokens(old=False, reference=False, importance=None)
    with pytest.raises(ZeroDivisionError) as caught:
        policy_loss(Objective(BoundLoss(LossSpec("broken", 1, broken), "their-dist")), given, counts(given))
    assert caught.value.__notes__ == ["(raised by the loss 'broken' of their-dist)"]


def test_the_entropy_bonus_makes_a_token_cheaper_by_a_share_of_its_entropy() -> None:
    logps, entropies = torch.tensor([[-1.0, -0.5]]), torch.tensor([[0.5, 2.0]])
    given = LossTokens(logps, logps - 0.1, torch.ones(1, 2), torch.tensor([[1.0]]), entropies)
    costs = bound("entropy_bonus", coefficient=0.1)(given).costs
    torch.testing.assert_close(costs, bound("dapo")(given).costs - 0.1 * entropies)
