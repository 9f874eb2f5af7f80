"""Allocates a transformers cache in advance, by a quarter more, so that new tokens copy no keys and values."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicLayer

LEAST = 32  # slots that are allocated at once


class PreallocatedLayer(DynamicLayer):  # type: ignore[misc]
    """The keys and values [B, heads, W, D] of one layer of full attention; it goes on from those of `layer`."""

    def __init__(self, layer: DynamicLayer, most: int) -> None:
        super().__init__()
        if layer.is_initialized:
            self.lazy_initialization(layer.keys, layer.values)
            self.keys, self.values = layer.keys, layer.values
        self._most = most
        self._room: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes new tokens [B, heads, N, D] behind the others, and returns all keys and all values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        taken, new = self.get_seq_length(), key_states.shape[-2]
        if self._room is None or self._room[0].shape[-2] < taken + new:
            slots = max(taken + new, min(taken + max(new, taken // 4, LEAST), self._most))
            self._room = _moved(self.keys, key_states, slots), _moved(self.values, value_states, slots)
        keys, values = self._room
        keys[..., taken : taken + new, :] = key_states
        values[..., taken : taken + new, :] = value_states
        self.keys, self.values = keys[..., : taken + new, :], values[..., : taken + new, :]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        super().reorder_cache(beam_idx)
        self._room = None


def _moved(old: torch.Tensor, new: torch.Tensor, slots: int) -> torch.Tensor:
    room = new.new_empty((*new.shape[:2], slots, new.shape[3]))
    if old.numel():
        room[..., : old.shape[-2], :] = old
    return room
