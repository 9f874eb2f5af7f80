"""Gradients found in the forward pass, where the coefficients of the loss are known by then, against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from logp_problem import DEVICE, LOGP_TOLERANCE, OPTIONS, TOLERANCE, Expected, N, Problem, V, error, gradients, problem

from grpo.kernels import linear_logp, naive_logp


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_known_coefficients_give_the_gradients_of_float64(
    dtype: torch.dtype, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo.kernels.fused.WORKSPACE", 5 * V * 4)  # three tiles of rows
    monkeypatch.setattr("grpo.kernels.fused.gradients", None)  # nothing may be computed anew
    given, expected = problem(dtype, **options), Expected(N, factor=8.0)
    found = given.run(linear_logp, mode="fused", entropy="value", coefficients=expected)
    assert expected.asked >= 3
    wanted = given.run(naive_logp)
    for one, other in zip(found, wanted, strict=True):
        assert error(one, other) < LOGP_TOLERANCE[dtype] * 3
    pairs = zip(gradients(given, found[0], None), gradients(given, wanted[0], None), strict=True)
    for one, other in pairs:
        assert one.dtype == dtype
        assert error(one, other) < TOLERANCE[dtype]


@pytest.mark.parametrize("wrong", ["another loss", "twice"])
def test_wrong_coefficients_change_no_gradient(wrong: str) -> None:
    given, expected = problem(bias=True, lora=True), Expected(N)
    if wrong == "another loss":
        expected.values[3] += 0.1
    logp, _ = given.run(linear_logp, mode="fused", coefficients=expected)
    if wrong == "twice":  # what was found in the forward pass is given away once
        torch.autograd.grad(logp.sum(), given.parameters(), retain_graph=True)
    for one, other in zip(gradients(given, logp, None), gradients(given, given.run(naive_logp)[0], None), strict=True):
        assert error(one, other) < TOLERANCE[torch.float32]


def test_known_coefficients_are_used_for_a_head_that_trains_on_a_cpu() -> None:
    def asked(of: Problem, **settings: Any) -> int:
        expected = Expected(N)
        of.run(linear_logp, coefficients=expected, **settings)
        return expected.asked

    on_cpu = int(DEVICE == "cpu")
    assert asked(problem()) == on_cpu
    assert asked(problem(), entropy="value") == on_cpu
    assert asked(problem(), entropy="grad") == asked(problem(), mode="recompute") == 0
    assert asked(problem(trained=False)) == 0
    assert asked(problem(torch.bfloat16)) == 0  # sums in float32 would be as large as the head
    adapter = problem(lora=True)
    assert asked(replace(adapter, weight=adapter.weight.detach())) == on_cpu
