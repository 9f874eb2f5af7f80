"""Linear layers and their adapters against the same in float64, and what they allocate."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo.kernels.linear import adapted_linear, gains, linear

SCALE = 0.7
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}


class Case:
    """x [*rows, in], W [out, in], b [out] or None, A [4, in] and B [out, 4], and what the gradient of y is."""

    def __init__(self, rows: tuple[int, ...], shape: tuple[int, int], bias: bool, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        (width, out), self.dtype = shape, dtype
        made = {
            "x": torch.randn(*rows, width),
            "weight": torch.randn(out, width) / width**0.5,
            "a": torch.randn(4, width) / width**0.5,
            "b": torch.randn(out, 4),
            "gradient": torch.randn(*rows, out),
        }
        if bias:
            made["bias"] = torch.randn(out)
        self.tensors = {name: tensor.to(dtype) for name, tensor in made.items()}

    def run(self, way: Any, dtype: torch.dtype, trained: set[str]) -> dict[str, torch.Tensor]:
        """y and the gradients of what is trained, by a way to compute y from these tensors."""
        own = {
            name: tensor.detach().to(dtype, copy=True).requires_grad_(name in trained)
            for name, tensor in self.tensors.items()
        }
        y = way(own["x"], own["weight"], own.get("bias"), own["a"], own["b"])
        (y * own["gradient"]).sum().backward()
        return {"y": y.detach(), **{name: own[name].grad for name in trained if name in own}}

    def same(self, way: Any, plain: Any, trained: set[str]) -> None:
        wanted = self.run(plain, torch.float64, trained)
        found = self.run(way, self.dtype, trained)
        assert found.keys() == wanted.keys()
        for name, tensor in found.items():
            assert tensor.dtype == self.dtype
            close = (
                TOLERANCE[self.dtype] * wanted[name].abs().max().clamp(min=1e-3).item() if wanted[name].numel() else 0
            )
            torch.testing.assert_close(tensor.double(), wanted[name], rtol=0, atol=4 * close, msg=f"{name} differs")


def in_layers(x: torch.Tensor, weight: Any, bias: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, weight, bias) + SCALE * (x @ a.T) @ b.T


def alone(x: torch.Tensor, weight: Any, bias: Any, *_: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, weight, bias)


ROWS = [(1,), (17,), (3, 5), (1, 40), (0,), (2, 0)]
SHAPES = [(24, 40), (512, 520)]  # the second is large enough for the faster products


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_an_adapter_gives_the_outputs_and_gradients_of_its_layers(
    rows: tuple[int, ...], shape: tuple[int, int], bias: bool, dtype: torch.dtype
) -> None:
    case = Case(rows, shape, bias, dtype)

    def way(x: Any, weight: Any, bias: Any, a: Any, b: Any) -> Any:
        return adapted_linear(x, weight, bias, a, b, SCALE)

    case.same(way, in_layers, {"x", "a", "b"})
    if dtype == torch.float64:
        case.same(way, in_layers, {"x", "weight", "bias", "a", "b"})
        case.same(way, in_layers, {"a"})
        case.same(way, in_layers, {"b"})
        case.same(way, in_layers, {"x"})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_gives_the_outputs_and_gradients_of_torch(
    rows: tuple[int, ...], shape: tuple[int, int], bias: bool, dtype: torch.dtype
) -> None:
    case = Case(rows, shape, bias, dtype)
    case.same(lambda x, weight, bias, *_: linear(x, weight, bias), alone, {"x", "weight", "bias"})
    case.same(lambda x, weight, bias, *_: linear(x, weight, bias), alone, {"weight"})


def test_inputs_and_gradients_may_lie_in_memory_in_any_order() -> None:
    case = Case((6, 50), (512, 520), False, torch.float32)

    def turned(way: Any) -> Any:
        def turn(x: Any, weight: Any, bias: Any, a: Any, b: Any) -> Any:
            return way(x.transpose(0, 1), weight, bias, a, b).transpose(0, 1)

        return turn

    case.same(turned(lambda x, w, c, a, b: adapted_linear(x, w, c, a, b, SCALE)), turned(in_layers), {"x", "a", "b"})


def test_nothing_of_full_width_is_made_beside_the_outputs() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    case = Case((64,), (512, 2048), False, torch.float32)
    made: dict[int, int] = {}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.shape == (64, 2048):
                made[out.data_ptr()] = out.numel()
            return out

    t = case.tensors
    with torch.no_grad(), Watch():
        adapted_linear(t["x"], t["weight"], None, t["a"], t["b"], SCALE)
    assert len(made) == 1
    made.clear()
    with torch.no_grad(), Watch():
        in_layers(t["x"], t["weight"], None, t["a"], t["b"])
    assert len(made) > 1, "the watch sees nothing"


def test_only_large_products_in_float32_take_the_other_library() -> None:
    rows, matrix = torch.randn(16, 512), torch.randn(512, 512)
    assert gains(rows, matrix) == torch.backends.mkldnn.is_available()
    assert not gains(rows[:15], matrix)
    assert not gains(rows[:, :511], matrix[:511])
    assert not gains(rows.double(), matrix.double())
    assert not gains(rows.bfloat16(), matrix.bfloat16())
    assert not gains(rows.to("meta"), matrix.to("meta"))
    torch.backends.mkldnn.set_flags(False)
    try:
        assert not gains(rows, matrix)
    finally:
        torch.backends.mkldnn.set_flags(True)
