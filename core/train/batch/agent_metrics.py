"""Computes what a batch says about its agent programs: the metrics `agent/...`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from grpo.core.record.agent_calls import agent_of
from grpo.core.rollout.agents.tree import Reason
from grpo.core.text.stats import mean
from grpo.plugins.types import Completion

PREFIX = "agent/"
_MEANS = ("calls", "tokens_trained", "tokens_untrained", "model_seconds", "own_seconds")


def agent_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    """Returns means over the episodes that an agent played; nothing where there is none."""
    played = [(completion, record) for completion in completions if (record := agent_of(completion.info)) is not None]
    if not played:
        return {}
    records = [record for _, record in played]
    ended = [record.exit for record in records if record.exit is not None and not record.timed_out]
    figures = {
        **{name: mean([getattr(record, name) for record in records]) for name in _MEANS},
        **{f"roots/{name}": mean([record.roots.get(name, 0) for record in records]) for name in get_args(Reason)},
        "undelivered": mean([sum(not call.delivered for call in record.tree) for record in records]),
        "refused": mean([bool(record.refused) for record in records]),
        "exits": sum(status != 0 for status in ended) / len(records),
        "timed_out": mean([record.timed_out for record in records]),
        "failed": mean([rollout.finish_reason == "error" for rollout, _ in played]),
    }
    return {f"{PREFIX}{name}": figure for name, figure in figures.items()}
