"""What a training pass says about itself: the loss's values in, sums that processes add up and then metrics out.

The names are TRL's. Metrics are over the rows that were trained on; a group without a signal is not among them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grpo.core.train.objective import LossValue

LOW, HIGH = "clip_ratio/low_mean", "clip_ratio/high_mean"


def update_sums(
    value: LossValue, entropy: torch.Tensor | None, mask: torch.Tensor, importance: torch.Tensor | None
) -> torch.Tensor:
    """Returns [7 + M] float32 sums over tokens.

    1, entropy, KL, clipped low, clipped high, clipped either way, weights, and M metrics of the loss, in its order.

    Args:
        value: of the loss.
        entropy: [B, T].
        mask: [B, T].
        importance: [B, T] or [B, 1], or None.
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


def update_metrics(gathered: torch.Tensor, names: Sequence[str] = (), *, kl: bool, weighted: bool) -> dict[str, float]:
    """Turns the sums of all processes, [processes, 7 + M], into means per token; M metrics of the loss are named.

    They are NaN where no token was trained on, as in a micro batch that only fills a step up or has no signal.
    """
    sums = gathered.sum(dim=0)
    means = (sums / sums[0]).tolist()
    metrics = {"entropy": means[1], LOW: means[3], HIGH: means[4], "clip_ratio/region_mean": means[5]}
    if kl:
        metrics["kl"] = means[2]
    if weighted:
        metrics["sampling/importance_sampling_ratio/mean"] = means[6]
    return metrics | {f"loss/{name}": mean for name, mean in zip(names, means[7:], strict=True)}
