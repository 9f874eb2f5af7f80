"""`linear_logp` against float64: every mode, dtype and option, its gradients, its edges and what torch does with it.

These tests and those of its modes run the Triton passes on a GPU, or with TRITON_INTERPRET=1 on CPU
(tests/kernels/test_triton.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from logp_problem import (
    DEVICE,
    INTERPRETED,
    LOGP_TOLERANCE,
    OPTIONS,
    TOLERANCE,
    Expected,
    H,
    N,
    Problem,
    V,
    error,
    gradients,
    problem,
)

from grpo.kernels import Tile, linear_logp, naive_logp


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("mode", ["jacobian", "recompute", "recompute with an entropy term"])
def test_values_and_gradients_equal_those_of_float64(dtype: torch.dtype, options: dict[str, Any], mode: str) -> None:
    jacobian, differentiable = mode == "jacobian", mode.endswith("term")
    given = problem(dtype, trained=not jacobian, **options)
    found = given.run(
        linear_logp,
        mode="jacobian" if jacobian else "recompute",
        entropy="grad" if differentiable else "value",
        tile=Tile(7, 48),
    )
    wanted = given.run(naive_logp)
    for one, other in zip(found, wanted, strict=True):
        assert error(one, other) < LOGP_TOLERANCE[dtype] * 3
    pairs = zip(
        gradients(given, found[0], found[1] if differentiable else None),
        gradients(given, wanted[0], wanted[1] if differentiable else None),
        strict=True,
    )
    for one, other in pairs:
        assert one.dtype == dtype
        assert error(one, other) < TOLERANCE[dtype]


@pytest.mark.parametrize("trained", [False, True])
def test_backward_can_run_twice(trained: bool) -> None:
    given = problem(trained=trained)
    logp, _ = given.run(linear_logp)
    first = torch.autograd.grad(logp.sum(), given.hidden, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(logp.sum(), given.hidden)[0])


@pytest.mark.skipif(INTERPRETED, reason="float64 always takes the torch passes")
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_the_torch_passes_pass_gradcheck(trained: bool, softcap: float | None) -> None:
    given = problem(torch.float64, trained=trained, bias=True, lora=True, softcap=softcap, shape=(3, 4, 7))

    def function(*parameters: torch.Tensor) -> Any:
        hidden, weight, bias, a, b = parameters
        same = replace(given, hidden=hidden, weight=weight, bias=bias, lora=(a, b, 0.5))
        logp, entropy = same.run(linear_logp, tile=Tile(2, 3), entropy="grad" if trained else "none")
        return (logp, entropy) if trained else logp

    assert torch.autograd.gradcheck(function, given.parameters())


@pytest.mark.parametrize("margin", [0.0, 5.0, 15.0, 30.0, 60.0])
@pytest.mark.parametrize("mode", ["jacobian", "fused", "recompute"])
def test_confident_tokens_keep_their_gradient(margin: float, mode: str) -> None:
    """A target that leads by up to 60 nats: 1 - p must not be lost to rounding."""
    hidden = torch.eye(4, 8, device=DEVICE).requires_grad_()
    weight = 0.1 * torch.randn(50, 8, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    target = torch.arange(4, device=DEVICE)
    weight[:4, :4] += margin * torch.eye(4, device=DEVICE)
    given = Problem(hidden, weight.requires_grad_(mode != "jacobian"), target)
    known = (lambda logp, rows: torch.ones_like(logp)) if mode == "fused" else None
    logp, _ = given.run(linear_logp, tile=Tile(4, 16), mode=mode, coefficients=known)
    exact_hidden = hidden.detach().double().requires_grad_()
    exact_weight = weight.detach().double().requires_grad_()
    z = exact_hidden @ exact_weight.t()
    rest = z.masked_fill(torch.nn.functional.one_hot(target, 50).bool(), -torch.inf).logsumexp(dim=1)
    exact = torch.nn.functional.logsigmoid(z.gather(1, target[:, None])[:, 0] - rest)
    assert (logp <= 0).all()
    torch.testing.assert_close(logp.double(), exact, rtol=1e-4, atol=0)
    gradient = torch.autograd.grad(logp.sum(), hidden, retain_graph=True)[0]
    assert error(gradient, torch.autograd.grad(exact.sum(), exact_hidden, retain_graph=True)[0]) < 1e-4
    if mode != "jacobian":
        (gradient,) = torch.autograd.grad(logp.sum(), weight)
        assert error(gradient, torch.autograd.grad(exact.sum(), exact_weight)[0]) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("columns", "softcap"), [(3000, None), (8192, 3.0), (8200, None), (9001, 3.0)])
def test_tiles_of_every_width_give_the_same(columns: int, softcap: float | None, dtype: torch.dtype) -> None:
    """Rows that stay in registers and rows that are read twice, each with a last tile that fills no whole line."""
    for mode in ("jacobian", "recompute"):
        given = problem(dtype, trained=mode == "recompute", softcap=softcap, shape=(3, 8, 9001))
        logp, entropy = given.run(linear_logp, tile=Tile(2, columns), mode=mode, entropy="value")
        exact = given.run(naive_logp)
        assert error(logp, exact[0]) < 3 * LOGP_TOLERANCE[dtype]
        assert error(entropy, exact[1]) < 3 * LOGP_TOLERANCE[dtype]
        for one, other in zip(gradients(given, logp, None), gradients(given, exact[0], None), strict=True):
            assert error(one, other) < TOLERANCE[dtype]


@pytest.fixture
def filled_with_nan() -> Iterator[None]:
    """Memory that nobody wrote to holds NaN."""
    torch.use_deterministic_algorithms(True)
    filling: Any = torch.utils.deterministic  # it makes its properties when it is imported
    assert filling.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.usefixtures("filled_with_nan")
def test_memory_that_nobody_wrote_to_reaches_no_result(softcap: float | None, dtype: torch.dtype) -> None:
    assert torch.empty(4).isnan().all()
    given = problem(dtype, trained=True, lora=True, softcap=softcap)
    exact = given.run(naive_logp)
    for settings in (
        {"mode": "recompute"},
        {"mode": "fused", "coefficients": lambda logp, rows: torch.ones_like(logp)},
    ):
        logp, _ = given.run(linear_logp, tile=Tile(7, 43), **settings)
        assert error(logp, exact[0]) < 3 * LOGP_TOLERANCE[dtype]
        for one in torch.autograd.grad(logp.sum(), given.parameters()):
            assert one.isfinite().all()


def test_an_offset_of_all_logits_cancels() -> None:
    given = problem(trained=False)
    plain = given.run(linear_logp, entropy="value")
    shifted = replace(given, bias=torch.full((V,), 1e4, device=DEVICE)).run(linear_logp, entropy="value")
    for one, other in zip(plain, shifted, strict=True):
        assert (one - other).abs().max() < 5e-3  # float32 itself rounds logits of 1e4 to 1e-3


def test_entries_of_the_vocabulary_may_be_switched_off() -> None:
    given = problem(trained=False)
    bias = torch.zeros(V, device=DEVICE)
    bias[50:60] = -torch.inf
    given = replace(given, bias=bias, target=given.target.clamp(max=49))
    logp, entropy = given.run(linear_logp, entropy="value", tile=Tile(4, 8))
    wanted = naive_logp(given.hidden, torch.cat([given.weight[:50], given.weight[60:]]), given.target)
    assert error(logp, wanted[0]) < 1e-6
    assert entropy is not None
    assert error(entropy, wanted[1]) < 1e-5
    assert torch.isfinite(torch.autograd.grad(logp.sum(), given.hidden)[0]).all()


@pytest.mark.parametrize("shape", [(0, 8, 9), (1, 8, 9), (3, 8, 1), (2, 8, 2), (5, 7, 1001)])
@pytest.mark.parametrize("trained", [False, True])
def test_small_and_odd_shapes(shape: tuple[int, int, int], trained: bool) -> None:
    given = problem(trained=trained, shape=shape, bias=True)
    logp, entropy = given.run(linear_logp, entropy="value", tile=Tile(4, 64))
    assert entropy is not None
    wanted = given.run(naive_logp)
    torch.testing.assert_close(logp.double(), wanted[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(entropy.double(), wanted[1], rtol=1e-5, atol=1e-6)
    for one, other in zip(gradients(given, logp, None), gradients(given, wanted[0], None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_target_that_is_a_column_of_something_is_read_right() -> None:
    given = problem()
    column = torch.stack([given.target.flip(0), given.target], dim=1)[:, 1]
    assert not column.is_contiguous()
    assert torch.equal(replace(given, target=column).run(linear_logp)[0], given.run(linear_logp)[0])


@pytest.mark.skipif(DEVICE != "cpu", reason="there a failed assertion ends the process's use of the GPU")
@pytest.mark.parametrize("wrong", [-100, -1, V])
def test_a_target_outside_of_the_vocabulary_is_no_number(wrong: int) -> None:
    for trained in (False, True):
        given = problem(trained=trained)
        given.target[3] = wrong
        for one in (given, replace(given, hidden=given.hidden.detach())):
            with pytest.raises(ValueError, match=r"every target must be from 0 to V - 1 = 100\. Leave out ignored"):
                one.run(linear_logp)


def test_a_target_on_another_device_is_refused() -> None:
    given = problem()
    with pytest.raises(ValueError, match="target on meta"):
        replace(given, target=given.target.to("meta")).run(linear_logp)


def test_masked_rows_give_zero_gradients() -> None:
    for trained in (False, True):
        given = problem(trained=trained)
        logp, _ = given.run(linear_logp)
        for gradient in gradients(given, logp * 0.0, None):
            assert not gradient.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_without_gradients_nothing_is_kept_and_the_numbers_are_the_same_bits(dtype: torch.dtype) -> None:
    """The log-probabilities of sampling and of the first training pass are compared with each other."""
    given = problem(dtype, trained=False)
    logp, _ = given.run(linear_logp)
    with torch.no_grad():
        again, entropy = given.run(linear_logp)
    assert again.grad_fn is None
    assert entropy is None
    assert torch.equal(logp.detach(), again)
    full, _ = replace(given, weight=given.weight.detach().requires_grad_()).run(linear_logp)
    assert torch.equal(full.detach(), again)


@pytest.mark.parametrize("mode", ["fused", "recompute"])
def test_it_follows_autocast(mode: str) -> None:
    given = problem(trained=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        logp, _ = given.run(linear_logp, mode=mode, coefficients=Expected(N))
    rounded = naive_logp(given.hidden.bfloat16(), given.weight.bfloat16(), given.target)[0]
    assert logp.dtype == torch.float32
    assert error(logp, rounded) < 1e-6
    wanted = gradients(given, rounded, None)
    for gradient, other in zip(gradients(given, logp, None), wanted, strict=True):
        assert gradient.dtype == torch.float32
        assert error(gradient, other) < TOLERANCE[torch.bfloat16]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of torch._dynamo itself
def test_it_works_inside_a_compiled_function() -> None:
    given = problem(trained=True)

    def step(hidden: torch.Tensor) -> torch.Tensor:
        logps: torch.Tensor = linear_logp(hidden * 2, given.weight, given.target)[0]
        return logps * 3

    compiled = torch.compile(step, backend="eager")
    assert torch.equal(compiled(given.hidden), step(given.hidden))


@pytest.mark.parametrize("mode", ["fused", "recompute"])
def test_tied_embeddings_and_accumulation_add_up(mode: str) -> None:
    weight = torch.randn(30, 8, generator=torch.Generator().manual_seed(4)).to(DEVICE).requires_grad_()
    target = torch.arange(6, device=DEVICE)
    for _ in range(2):
        logp, _ = linear_logp(
            weight[target + 1] * 2, weight, target, mode=mode, coefficients=lambda logp, rows: torch.ones_like(logp)
        )
        logp.sum().backward()
    found = weight.grad
    weight.grad = None
    for _ in range(2):
        naive_logp(weight[target + 1] * 2, weight, target)[0].sum().backward()
    assert found is not None
    assert weight.grad is not None
    assert error(found, weight.grad) < 1e-6


@pytest.mark.parametrize("trained", [False, True])
def test_sharded_weights_are_whole_only_inside_the_context(trained: bool) -> None:
    given = problem(trained=trained)
    whole = given.weight.detach().clone()
    entered = []

    @contextmanager
    def gathered() -> Iterator[None]:
        given.weight.data = whole.clone()
        entered.append(1)
        try:
            yield
        finally:
            given.weight.data = torch.empty(0, device=DEVICE)

    given.weight.data = torch.empty(0, device=DEVICE)
    logp, _ = given.run(linear_logp, gathered=gathered)
    forward = len(entered)
    grads = gradients(given, logp, None)
    assert len(entered) == forward + trained  # a frozen head is not needed in the backward pass
    given.weight.data = whole
    for one, other in zip(grads, gradients(given, given.run(naive_logp)[0], None), strict=True):
        assert error(one, other) < 1e-5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "jacobian"}, "the head has parameters to train"),
        ({"mode": "fused"}, "it needs `coefficients`"),
        ({"temperature": 0.0}, "must be above 0"),
        ({"softcap": -1.0}, "must be above 0"),
        ({"bias": torch.zeros(3)}, r"bias must be \[V\]"),
        ({"lora": (torch.zeros(2, 3), torch.zeros(3, 2), 1.0)}, r"lora must be A \[r, H\]"),
        ({"target": torch.zeros(2, dtype=torch.long)}, r"Flatten batch and length"),
        ({"target": torch.zeros(N)}, "target int64"),
        ({"weight": torch.zeros(V, H, dtype=torch.int8)}, "quantised"),
        ({"weight": torch.zeros(0)}, "sharded"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(change: dict[str, Any], message: str) -> None:
    given = problem(trained="mode" in change)
    arguments = {"hidden": given.hidden, "weight": given.weight, "target": given.target}
    moved = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in change.items()}
    with pytest.raises(ValueError, match=message):
        linear_logp(**{**arguments, **moved})


def test_a_tile_holds_something() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Tile(0, 4)
