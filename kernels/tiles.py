"""Chooses how many rows and vocabulary columns of the logits are computed at once."""

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
    """Cuts `range(total)` into pieces of at most `step`, each (first, last + 1)."""
    return [(first, min(first + step, total)) for first in range(0, total, step)]


def stride_of(columns: int) -> int:
    """Returns the stride of a tile's rows, a multiple of LINE, so that a GPU moves 16 bytes at a time."""
    return -(-columns // LINE) * LINE


def laid_out(buffer: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Returns a tile [rows, columns] at the beginning of a flat buffer of at least rows * stride_of(columns)."""
    stride = stride_of(columns)
    return buffer[: rows * stride].view(rows, stride)[:, :columns]
