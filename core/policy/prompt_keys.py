"""Holds keys and values of prompts once for all completions of each, and attends to them in one product."""

from __future__ import annotations

import torch


class PromptKeys:
    """The prompts of a batch of B completions, those of one prompt side by side; models take `attention_prompts`.

    No dataclass: what wraps a model would look for tensors in one, and cast them. `layers`: keys and values of each
    layer, [G, shared heads, P, D]. `counts`: [G, P], 0 in slots of padding. `owners`: [B] int64, the prompt of each
    completion, ascending.
    """

    __slots__ = ("_counts", "_layers", "_mask", "_most", "_owners", "_places")

    def __init__(
        self, layers: list[tuple[torch.Tensor, torch.Tensor]], counts: torch.Tensor, owners: torch.Tensor
    ) -> None:
        self._layers = [(keys.contiguous(), values.contiguous()) for keys, values in layers]
        self._counts = counts
        self._arrange(owners)

    @property
    def device(self) -> torch.device:
        return self._counts.device

    def select(self, rows: torch.Tensor) -> None:
        """Keeps these completions, [N] ascending, and the prompts that they need."""
        self._arrange(self._owners[rows])

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
    ) -> torch.Tensor:
        """Attends to prompts and what came after them; returns [B, 1, heads, D].

        `query`: [B, heads, 1, D]. `key`, `value`: [B, shared heads, T, D], of the tokens after the prompts; all are
        seen. `scaling`: of the scores, or None for 1 / sqrt(D).
        """
        rows, heads, _, size = query.shape
        shared, (keys, values) = key.shape[1], self._layers[layer]
        own = query.view(rows, shared, heads // shared, size) * (size**-0.5 if scaling is None else scaling)
        prompt = torch.baddbmm(self._mask, self._gathered(own), keys.flatten(0, 1).transpose(1, 2))
        after = torch.matmul(own, key.transpose(2, 3))
        weights = torch.cat([self._spread(prompt, shared), after], dim=-1).softmax(dim=-1)
        width = keys.shape[2]
        attended = torch.bmm(self._gathered(weights[..., :width]), values.flatten(0, 1))
        both = self._spread(attended, shared) + torch.matmul(weights[..., width:], value)
        return both.reshape(rows, 1, heads, -1)

    def _arrange(self, owners: torch.Tensor) -> None:
        numbers, owners, counts = torch.unique_consecutive(owners, return_inverse=True, return_counts=True)
        if len(numbers) < len(self._counts):
            self._layers = [(keys[numbers], values[numbers]) for keys, values in self._layers]
            self._counts = self._counts[numbers]
        self._owners, self._most = owners, int(counts.max())
        first = counts.cumsum(dim=0) - counts
        places = owners * self._most + torch.arange(len(owners), device=owners.device) - first[owners]
        self._places = places if bool((counts < self._most).any()) else None  # of completions, among those of most
        keys = self._layers[0][0]
        mask = torch.zeros_like(self._counts, dtype=keys.dtype).masked_fill_(self._counts == 0, -torch.inf)
        self._mask = mask[:, None].repeat_interleave(keys.shape[1], dim=0)  # [G shared, 1, P]

    def _gathered(self, rows: torch.Tensor) -> torch.Tensor:
        """[B, shared, R, n] to [G shared, most R, n]."""
        prompts, (_, shared, queries, size) = len(self._counts), rows.shape
        if self._places is not None:
            rows = rows.new_zeros(prompts * self._most, shared, queries, size).index_copy_(0, self._places, rows)
        own = rows.reshape(prompts, self._most, shared, queries, size).transpose(1, 2)
        return own.reshape(prompts * shared, self._most * queries, size)

    def _spread(self, attended: torch.Tensor, shared: int) -> torch.Tensor:
        """[G shared, most R, n] to [B, shared, R, n]."""
        own = attended.view(len(self._counts), shared, self._most, -1, attended.shape[-1]).transpose(1, 2)
        rows = own.flatten(0, 1)
        return rows if self._places is None else rows.index_select(0, self._places)
