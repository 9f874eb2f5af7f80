"""Chooses how many rows and vocabulary columns of the logits are processed at once.

The workspace of a kernel is one tile of logits, [rows, columns] in float32, and in the frozen-head mode the sums
[rows, H] beside it. Larger tiles make better matrix products; tiles that fit the cache make the passes over them
cheap, which matters most for small H, where a logit costs few multiply-adds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

LINE = 16  # logits


@dataclass(frozen=True, slots=True)
class Tile:
    """The most rows (tokens) and columns (vocabulary entries) of logits that exist at a time."""

    rows: int
    columns: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise ValueError(f"a tile of {self.rows} x {self.columns} logits holds nothing; both must be at least 1")


def default_tile(device: torch.device) -> Tile:
    """Returns the tile for a device."""
    return Tile(rows=1024, columns=1024) if device.type == "cpu" else Tile(rows=4096, columns=8192)


def spans(total: int, step: int) -> list[tuple[int, int]]:
    """Cuts `range(total)` into pieces of at most `step`: their first and last-but-one-past numbers."""
    return [(first, min(first + step, total)) for first in range(0, total, step)]


def stride_of(columns: int) -> int:
    """Returns how far apart the rows of a tile begin: at multiples of LINE, so that a GPU moves 16 bytes at a time."""
    return -(-columns // LINE) * LINE


def laid_out(buffer: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Returns a tile [rows, columns] in the beginning of a flat buffer with room for rows * stride_of(columns)."""
    stride = stride_of(columns)
    return buffer[: rows * stride].view(rows, stride)[:, :columns]
