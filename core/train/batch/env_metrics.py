"""Computes the metrics of each environment in a batch, named `env/NAME/...`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from grpo.core.text.stats import mean, proportion

if TYPE_CHECKING:
    from grpo.core.train.batch.batch import Batch

PREFIX = "env/"
HELD_OUT = "held_out/accuracy"
HELD_OUT_LOW, HELD_OUT_HIGH = f"{HELD_OUT}_low", f"{HELD_OUT}_high"  # its 95% interval
HELD_OUT_PROBLEMS, HELD_OUT_QUESTIONS = "held_out/problems", "held_out/questions"  # judged, and the different ones


def env_metrics(batch: Batch, names: Iterable[str], right: Sequence[bool | None]) -> dict[str, float]:
    """Returns the metrics of each environment, NaN for a mean of nothing; `right` may be None where nobody knows."""
    totals: list[float] = batch.advantages.totals.tolist()
    metrics: dict[str, float] = {}
    for name in names:
        places = [place for place, completion in enumerate(batch.completions) if completion.env == name]
        own = [batch.completions[place] for place in places]
        known = [totals[place] for place in places if not math.isnan(totals[place])]
        figures = {
            "share": len(places) / len(batch.completions),
            "reward": mean(known),
            "accuracy": proportion([right[place] for place in places]).mean,
            "length": mean([len(completion.token_ids) for completion in own]),
            "turns": mean([completion.turns for completion in own]),
            "failed": mean([completion.finish_reason == "error" for completion in own]),
        }
        metrics |= {f"{PREFIX}{name}/{what}": value for what, value in figures.items()}
    return metrics
