"""Adds up the update's figures (TRL's names) over a step's tokens and divides once: means per trained token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from grpo.core.train.update.objective import LossValue
from grpo.plugins.errors import PluginError

LOW, HIGH = "clip_ratio/low_mean", "clip_ratio/high_mean"


def update_sums(
    value: LossValue, entropy: torch.Tensor | None, mask: torch.Tensor, importance: torch.Tensor | None
) -> torch.Tensor:
    """Returns [7 + M] float32 sums over tokens.

    1, entropy, KL, clipped low, clipped high, clipped either way, weights, and M metrics of the loss, in its order.
    `entropy`, `mask`: [B, T]. `importance`: [B, T] or [B, 1].
    """
    weight = mask.float()

    def total(values: torch.Tensor | None) -> torch.Tensor:
        if values is None:
            return weight.new_zeros(())
        return values.float().expand_as(weight).masked_fill(weight == 0, 0.0).sum()

    low, high = value.clipped_low, value.clipped_high
    return torch.stack(
        [
            weight.sum(),
            total(entropy),
            total(value.kl.detach() if value.kl is not None else None),
            total(low),
            total(high),
            total(low | high if low is not None and high is not None else low if high is None else high),
            total(importance),
            *(total(metric.detach()) for metric in value.metrics.values()),
        ]
    )


def update_metrics(sums: torch.Tensor, names: Sequence[str] = (), *, kl: bool, weighted: bool) -> dict[str, float]:
    """Turns sums [7 + M] into means per token, NaN where none was trained on; `names` are those of the M metrics."""
    means = (sums / sums[0]).tolist()
    metrics = {"entropy": means[1], LOW: means[3], HIGH: means[4], "clip_ratio/region_mean": means[5]}
    if kl:
        metrics["kl"] = means[2]
    if weighted:
        metrics["sampling/importance_sampling_ratio/mean"] = means[6]
    return metrics | {f"loss/{name}": mean for name, mean in zip(names, means[7:], strict=True)}


class UpdateFigures:
    def __init__(self, *, kl: bool, weighted: bool) -> None:
        self._kl = kl
        self._weighted = weighted
        self._sums: torch.Tensor | None = None
        self._names: tuple[str, ...] = ()

    def add(self, sums: torch.Tensor, names: tuple[str, ...], padding: int, positions: int) -> None:
        """Adds a micro batch's [7 + M] `update_sums`. Raises PluginError if the loss's metrics change."""
        more = torch.cat([sums.new_tensor([float(padding), float(positions)]), sums])
        if self._sums is not None and names != self._names:
            raise PluginError(
                f"the loss reports the metrics {', '.join(names) or 'none'} of one micro batch and "
                f"{', '.join(self._names) or 'none'} of another. Report the same ones each time."
            )
        self._names = names
        self._sums = more if self._sums is None else self._sums + more

    def clear(self) -> None:
        self._sums = None

    def take(self, gather: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
        """Returns the means of the step over all processes, and clears them; `gather`: [1, n] to [processes, n]."""
        if self._sums is None:
            return {}
        sums = gather(self._sums[None]).sum(dim=0)
        self.clear()
        padding, positions = sums[:2].tolist()
        metrics = update_metrics(sums[2:], self._names, kl=self._kl, weighted=self._weighted)
        return {**metrics, "update/padding": padding / positions}
