"""What changed in a tensor: old and changes make new, bit for bit, and what is broken is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from grpo.core.rollout.sync.changes import Changes, applied, changes_between

TYPES = (torch.bfloat16, torch.float32, torch.float16, torch.float64, torch.int8, torch.bool)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    raw = [t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*raw)


def random_bits(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Any bits: infinities, subnormals and all kinds of NaN are among them."""
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=generator, dtype=torch.uint8).to(torch.bool)
    count = int(np.prod(shape)) * dtype.itemsize
    return torch.randint(256, (count,), generator=generator, dtype=torch.uint8).view(dtype).reshape(shape)


def test_old_and_changes_make_new_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    forms = set()
    for trial in range(600):
        dtype = TYPES[trial % len(TYPES)]
        rank = int(torch.randint(4, (), generator=generator))
        shape = tuple(torch.randint(0, (2000, 60, 14)[rank - 1], (rank,), generator=generator).tolist()) if rank else ()
        old, new = (random_bits(shape, dtype, generator) for _ in range(2))
        density = 10.0 ** -float(torch.rand((), generator=generator) * 4)
        new = torch.where(torch.rand(shape, generator=generator) < density, new, old)
        if trial % 7 == 0 and new.numel():  # one run of neighbours
            new = old.clone()
            first = int(torch.randint(new.numel(), (), generator=generator))
            new.reshape(-1)[first : first + 30] = 1
        changes = changes_between(old, new)
        if changes is not None:
            forms.add(changes.form)
            assert same_bits(applied(old, changes), new)
            assert not new.numel() or 2 * changes.bytes < new.nbytes
        else:
            assert not same_bits(old, new)
    assert forms == {"bitmap", "gaps8", "gaps16"}


@pytest.mark.parametrize("gap", [0, 1, 254, 255, 256, 509, 510, 511, 65_533, 65_534, 65_535, 65_536, 131_071, 200_000])
def test_a_gap_of_any_length_is_told_exactly(gap: int) -> None:
    old = torch.zeros(200_100, dtype=torch.bfloat16)
    for places in ([gap], [3, gap + 4], [gap, 200_099]):
        new = old.clone()
        new[torch.tensor(places)] = 1.0
        changes = changes_between(old, new)
        assert changes is not None
        assert changes.bytes < 40 + 2 * 2 * 3
        assert same_bits(applied(old, changes), new)


def test_bits_are_compared_and_not_numbers() -> None:
    old = torch.zeros(64)
    new = old.clone()
    new[5], new[6] = -0.0, float("nan")
    other_nan = new.clone()
    other_nan.view(torch.int32)[6] += 1
    changes, between_nans = changes_between(old, new), changes_between(new, other_nan)
    assert changes is not None
    assert between_nans is not None
    assert len(changes.values) == 2
    assert same_bits(applied(old, changes), new)
    assert len(between_nans.values) == 1
    assert same_bits(applied(new, between_nans), other_nan)
    unchanged = changes_between(new, new.clone())
    assert unchanged is not None
    assert unchanged.bytes == 0


def test_where_nearly_everything_changed_there_are_no_changes() -> None:
    old = torch.randn(10_000, generator=torch.Generator().manual_seed(1))
    assert changes_between(old, old + 1) is None
    half = torch.where(torch.arange(10_000) % 2 == 0, old + 1, old)
    assert changes_between(old, half) is None, "half of the values and their positions are more than half of the tensor"


def test_one_in_a_hundred_entries_takes_a_sixtieth_of_the_bytes() -> None:
    generator = torch.Generator().manual_seed(2)
    old = torch.randn(500_000, generator=generator).bfloat16()
    new = torch.where(torch.rand(500_000, generator=generator) < 0.01, old * 1.01, old)
    changes = changes_between(old, new)
    assert changes is not None
    assert changes.bytes < old.nbytes / 60


OLD = torch.zeros(100, dtype=torch.bfloat16)
VALUES = torch.ones(2, dtype=torch.bfloat16)


def positions(*words: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.array(words, dtype=np.uint8)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (Changes("gaps8", positions(50, 60), VALUES), "position 111 of 100"),
        (Changes("gaps8", positions(255, 255, 0, 0), VALUES), "position 510 of 100|position 511 of 100"),
        (Changes("gaps8", positions(5, 255), VALUES), "the last gap does not end"),
        (Changes("gaps8", positions(5), VALUES), "2 values for 1 positions"),
        (Changes("gaps16", positions(5, 0, 1), VALUES), "no words of 2"),
        (Changes("bitmap", positions(3), VALUES), "a bitmap of 1 bytes for 100 entries"),
        (Changes("bitmap", np.full(13, 255, dtype=np.uint8), VALUES), "behind the last entry"),
        (Changes("gaps8", positions(5, 6), VALUES.float()), "float32 values for a tensor of torch.bfloat16"),
        (Changes("gaps8", positions(5, 6), VALUES[None]), "values for a tensor"),
    ],
)
def test_what_is_no_change_of_this_tensor_is_refused(changes: Changes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        applied(OLD, changes)
    good = replace(changes, form="gaps8", positions=positions(5, 6), values=VALUES)
    assert applied(OLD, good).nonzero().flatten().tolist() == [5, 12]
    assert not OLD.any(), "the old tensor is left as it is"
