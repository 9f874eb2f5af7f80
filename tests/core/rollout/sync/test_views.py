"""What an engine computes with, read back under the checkpoint's names: fused, padded, packed, tied, and in shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from grpo.core.rollout.sync.payload import differing, fingerprints
from grpo.core.rollout.sync.views import Shards, engine_fingerprints, engine_tensors, joined_adapter, joined_rows

WIDTH, VOCABULARY = 6, 10
SIZES = {"q_proj": 6, "k_proj": 2, "v_proj": 2}


def checkpoint() -> dict[str, torch.Tensor]:
    """Weights as a checkpoint names them."""
    torch.manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (VOCABULARY, WIDTH), "norm.weight": (WIDTH,)}
    for name, rows in SIZES.items():
        shapes |= {f"attn.{name}.weight": (rows, WIDTH), f"attn.{name}.bias": (rows,)}
    shapes["attn.o_proj.weight"] = (WIDTH, 6)
    return {name: torch.randn(shape) for name, shape in shapes.items()}


class Layer(nn.Module):
    """A layer with the attributes by which vLLM's layers say how they are split."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None, **attributes: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        if bias is not None:
            self.bias = nn.Parameter(bias)
        for name, value in attributes.items():
            setattr(self, name, value)


class Engine(nn.Module):
    """A model in the form of vLLM: q, k and v in one matrix, a padded vocabulary; the part that one rank holds."""

    packed_modules_mapping = {"qkv_proj": list(SIZES)}  # noqa: RUF012

    def __init__(self, weights: dict[str, torch.Tensor], rank: int = 0, ranks: int = 1) -> None:
        super().__init__()

        def mine(name: str, dimension: int = 0) -> torch.Tensor:
            return weights[name].chunk(ranks, dimension)[rank].clone()

        padding = torch.full((2 * ranks, WIDTH), 7.0)  # no token has these rows
        vocabulary = torch.cat([weights["embed.weight"], padding]).chunk(ranks)[rank].clone()
        self.embed = Layer(vocabulary, org_vocab_size=VOCABULARY, embedding_dim=WIDTH)
        self.attn: Any = nn.Module()
        self.attn.qkv_proj = Layer(
            torch.cat([mine(f"attn.{name}.weight") for name in SIZES]),
            torch.cat([mine(f"attn.{name}.bias") for name in SIZES]),
            input_size=WIDTH,
            output_size=sum(SIZES.values()),
            output_size_per_partition=sum(SIZES.values()) // ranks,
            output_sizes=list(SIZES.values()),
            output_partition_sizes=[size // ranks for size in SIZES.values()],
        )
        self.attn.o_proj = Layer(
            mine("attn.o_proj.weight", 1),
            input_size=6,
            input_size_per_partition=6 // ranks,
            output_size=WIDTH,
            output_size_per_partition=WIDTH,
        )
        self.norm = Layer(weights["norm.weight"].clone())


def test_every_weight_is_found_under_its_name_whatever_the_engine_fused_or_padded() -> None:
    weights = checkpoint()
    for seed in range(3):
        assert engine_fingerprints(Engine(weights), seed) == fingerprints(weights, seed)


def test_one_wrong_number_in_a_fused_matrix_is_seen_in_its_own_part_alone() -> None:
    weights, engine = checkpoint(), Engine(checkpoint())
    with torch.no_grad():
        engine.attn.qkv_proj.weight[SIZES["q_proj"]] += 0.25  # the first row of k
    assert differing(fingerprints(weights, 0), engine_fingerprints(engine, 0)) == ["attn.k_proj.weight"]


def test_a_matrix_that_was_packed_away_is_read_through_its_own_multiplication() -> None:
    weights, engine = checkpoint(), Engine(checkpoint())
    packed = engine.attn.o_proj
    secret: torch.Tensor = packed.weight.data

    class Method:
        def apply(self, module: Any, rows: torch.Tensor, bias: None) -> torch.Tensor:
            return rows @ secret.T

    packed.cpu_linear, packed.quant_method = True, Method()
    packed.weight = nn.Parameter(torch.empty(0))
    assert differing(fingerprints(weights, 1), engine_fingerprints(engine, 1)) == []
    secret[0] += 1.0
    assert differing(fingerprints(weights, 1), engine_fingerprints(engine, 1)) == ["attn.o_proj.weight"]


def test_names_are_free_of_the_engines_wrapping_for_adapters() -> None:
    engine = Engine(checkpoint())
    wrapped = nn.Module()
    wrapped.base_layer = engine.attn.o_proj
    engine.attn.o_proj = wrapped
    assert engine_fingerprints(engine, 0) == fingerprints(checkpoint(), 0)


def test_plain_tensors_are_views_so_that_writing_to_them_is_writing_to_the_engine() -> None:
    engine = Engine(checkpoint())
    views = dict(engine_tensors(engine))
    assert views.keys() == checkpoint().keys()
    assert all(torch.equal(views[name], tensor) for name, tensor in checkpoint().items())
    views["attn.v_proj.weight"].zero_()
    assert engine.attn.qkv_proj.weight[-SIZES["v_proj"] :].count_nonzero() == 0


def ranks_of(count: int) -> Iterator[tuple[Engine, Shards]]:
    """The parts of all ranks; what one gathers is what the others answer at the same place of the same pass."""
    engines = [Engine(checkpoint(), rank, count) for rank in range(count)]
    asked: list[list[torch.Tensor]] = [[] for _ in engines]
    for engine, own in zip(engines, asked, strict=True):
        engine_fingerprints(engine, 5, Shards(count, lambda t, own=own: own.append(t) or torch.stack([t] * count)))  # type: ignore[misc]
    for engine in engines:
        answers = iter(torch.stack(together) for together in zip(*asked, strict=True))
        yield engine, Shards(count, lambda _, answers=answers: next(answers))  # type: ignore[misc]


def test_every_rank_of_a_split_engine_reads_the_whole() -> None:
    for engine, shards in ranks_of(2):
        assert engine_fingerprints(engine, 5, shards) == fingerprints(checkpoint(), 5)


def test_fused_rows_of_two_ranks_are_joined_matrix_by_matrix() -> None:
    engine = Engine(checkpoint(), 0, 2).attn.qkv_proj
    both = torch.tensor([[0, 1, 2, 10, 20], [3, 4, 5, 11, 21]])  # three rows of q, one of k, one of v
    joined = joined_rows(engine, both[0], Shards(2, lambda _: both))
    assert joined.tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 20, 21]
    assert joined_rows(engine, both[0], Shards()).tolist() == both[0].tolist()


def test_an_adapters_factors_are_joined_along_the_side_that_is_split() -> None:
    a, b = torch.randn(4, 6), torch.randn(10, 4)
    columns, rows = Engine(checkpoint(), 0, 2).attn.o_proj, Engine(checkpoint(), 0, 2).attn.qkv_proj
    halves_of_a = Shards(2, lambda _: torch.stack(a.chunk(2, 1)))
    assert torch.equal(joined_adapter(columns, "A", a.chunk(2, 1)[0], halves_of_a), a)
    halves_of_b = Shards(2, lambda _: torch.stack(b.chunk(2, 0)))
    assert torch.equal(joined_adapter(rows, "B", b.chunk(2, 0)[0], halves_of_b), b)
    never = Shards(2, lambda _: torch.empty(0))  # what is not split is not asked for
    assert joined_adapter(columns, "B", b, never) is b
    assert joined_adapter(rows, "A", a, never) is a
