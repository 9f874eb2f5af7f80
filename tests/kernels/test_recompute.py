"""The tiles of the backward pass, and the logits kept for it: neither changes a number."""

from __future__ import annotations

import pytest
import torch
from logp_problem import error, gradients, problem

from grpo.kernels import Tile, linear_logp, naive_logp


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("tile", [Tile(1, 1), Tile(4, 8), Tile(100, 7), Tile(3, 1000), None])
def test_the_tile_changes_nothing(tile: Tile | None, trained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo.kernels.recompute.KEPT_BYTES", 0)
    given = problem(trained=trained, bias=True, lora=True, softcap=9.0, shape=(5, 8, 19))
    found, wanted = given.run(linear_logp, tile=tile)[0], given.run(naive_logp)[0]
    assert error(found, wanted) < 1e-6
    for one, other in zip(gradients(given, found, None), gradients(given, wanted, None), strict=True):
        assert error(one, other) < 1e-5


def test_logits_kept_from_the_forward_pass_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(bias=True)
    results = []
    for kept in (0, 2**20):
        monkeypatch.setattr("grpo.kernels.recompute.KEPT_BYTES", kept)
        logp, _ = given.run(linear_logp)
        first = gradients(given, logp, None)
        results.append((logp.detach(), first))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
