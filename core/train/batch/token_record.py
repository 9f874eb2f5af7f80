"""Records for each token its advantage and how far policy and sampler were apart."""

from __future__ import annotations

import torch

from grpo.core.processes.group import rows_of_all
from grpo.core.processes.rank import rank
from grpo.core.record.trained import TrainedRow
from grpo.core.train.batch.tensors import Tensors, rollouts_in, spread

ROWS = "rows"  # [N] int64, the numbers of the batch's rollouts, by which rows are found in its micro batches
DIGITS = 4  # of a nat: what float32 makes of the same arithmetic is zero


def numbered(tensors: Tensors) -> Tensors:
    """Returns tensors with the number of each row's rollout among those of all processes, as many on each."""
    count = rollouts_in(tensors)
    numbers = torch.arange(count, device=tensors["completion_ids"].device) + rank() * count
    return {**tensors, ROWS: spread(numbers, tensors)}


class TrainedTokens:
    """Collects the first pass over a batch, in the order of its rows; no record without a gradient."""

    def __init__(self) -> None:
        self._rows: list[TrainedRow] = []

    def add(
        self,
        rows: torch.Tensor,
        logps: torch.Tensor,
        sampled: torch.Tensor,
        mask: torch.Tensor,
        advantages: torch.Tensor,
    ) -> None:
        """Adds a micro batch, with `logps` and `sampled` [B, T] of the policy and of the sampler.

        `rows`: [B] from `numbered`; those of a rollout are adjacent. `mask`: [B, T], 1 for tokens that the policy
        chose. `advantages`: [B] or [B, T].
        """
        apart = (logps.float() - sampled.float()).cpu()
        worth = advantages.float().cpu()
        worth = worth[:, None].expand_as(apart) if worth.ndim == 1 else worth
        chosen = mask.cpu() > 0
        for number, row in enumerate(rows.tolist()):
            if bool(chosen[number].any()):  # else it only fills a batch up
                ratios, values = (_rounded(tensor[number][chosen[number]]) for tensor in (apart, worth))
                if self._rows and self._rows[-1].row == row:  # another row of the same rollout
                    ratios, values = (*self._rows[-1].log_ratios, *ratios), (*self._rows[-1].advantages, *values)
                    del self._rows[-1]
                self._rows.append(TrainedRow(row, ratios, values))

    def clear(self) -> None:
        self._rows.clear()

    def take(self) -> list[TrainedRow]:
        """Returns the records of all processes, in order of rows, and clears them; all processes call it."""
        own, self._rows = self._rows, []
        return sorted(rows_of_all(own, "what tokens were trained with"), key=lambda row: row.row)


def _rounded(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(round(value, DIGITS) + 0.0 for value in values.tolist())
