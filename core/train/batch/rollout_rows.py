"""Makes the records of a batch's rollouts for the run directory and trackers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from grpo.core.env.scores import ELSEWHERE
from grpo.core.record.run_dir import RolloutRow
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.batch.batch import Batch
from grpo.plugins.types import Completion


def rollout_rows(batch: Batch) -> list[RolloutRow]:
    totals: Sequence[float] = batch.advantages.totals.tolist()
    values: Sequence[float] = batch.advantages.values.tolist()
    earned, worth = batch.advantages.earned, batch.advantages.turns
    return [
        _row(
            batch.step,
            i // batch.group_size,
            completion,
            {name: outcomes[i] for name, outcomes in batch.outcomes.items()},
            reward=None if totals[i] != totals[i] else totals[i],
            advantage=values[i],
            right=batch.right[i],
            why=batch.why[i] if batch.why else None,
            turn_rewards=None if earned is None else _numbers(earned[i][: completion.turns]),
            turn_advantages=None if worth is None else _numbers(worth[i][: completion.turns]),
            sampled_by=(batch.sampled_by[i] if batch.sampled_by else ()) or None,
        )
        for i, completion in enumerate(batch.completions)
    ]


def wasted_rows(batch: Batch) -> list[RolloutRow]:
    """Makes the records of what was sampled in vain; a total it has none."""
    return [
        _row(batch.step, sample.group, sample.rollout.completion, sample.outcomes, reward=None, advantage=0.0)
        for sample in batch.wasted
    ]


def _row(
    step: int,
    group: int,
    completion: Completion,
    outcomes: Mapping[str, Outcome],
    **trained: Any,
) -> RolloutRow:
    return RolloutRow(
        step=step,
        group=group,
        prompt=json.dumps(list(completion.prompt), ensure_ascii=False),
        completion=completion.text,
        tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        columns=json.dumps(dict(completion.row), ensure_ascii=False, default=str),
        messages=json.dumps(list(completion.messages), ensure_ascii=False) if completion.info else None,
        info=json.dumps(dict(completion.info), ensure_ascii=False) if completion.info else None,
        outcomes={
            name: (outcome.kind, outcome.score, outcome.reason)
            for name, outcome in outcomes.items()
            if outcome != ELSEWHERE
        },
        env=completion.env,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
        **trained,
    )


def _numbers(values: torch.Tensor) -> list[float] | None:
    numbers: list[float] = values.tolist()
    return None if any(math.isnan(number) for number in numbers) else numbers
