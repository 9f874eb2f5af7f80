"""Chooses block and warps of the Triton passes from the width of a tile.

A row of up to LARGEST logits stays in registers and is read once; wider rows are read twice, in small blocks. The
figures behind it: `benchmarks/gpu_code.py`, benchmarks/results/kernels.md.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST, LARGEST = 1024, 8192  # logits of a block; narrower rows are masked, so that few variants are compiled
MOST_WARPS = 16  # of a program: with more, a multiprocessor holds one or two, which wait at the same time


@dataclass(frozen=True, slots=True)
class Launch:
    """What a pass is compiled for and launched with."""

    block: int  # logits that a program works on at a time, a power of two
    warps: int  # of 32 threads each
    in_one: bool = True  # whether a block holds the whole row


SWEEPS = Launch(block=1024, warps=8, in_one=False)
POINTWISE = Launch(block=1024, warps=4)


def fold_launch(width: int) -> Launch:
    """Returns the launch of `fold` for rows of `width` logits, at least 1."""
    if width > LARGEST:
        return SWEEPS
    block = max(SMALLEST, 1 << (width - 1).bit_length())
    return Launch(block, min(MOST_WARPS, block // 256))


def fold_launches() -> list[Launch]:
    """Returns all that `fold_launch` can return."""
    powers = range(SMALLEST.bit_length() - 1, LARGEST.bit_length())
    return [*(fold_launch(1 << power) for power in powers), SWEEPS]
