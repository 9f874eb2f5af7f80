"""Computes the metrics of a batch: rewards, lengths, turns, agents, sessions, and wasted samples."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import get_args

import torch

from grpo.core.processes.rank import count as processes
from grpo.core.record.agent_calls import agent_of
from grpo.core.rollout.agents.tree import Reason
from grpo.core.scoring.outcome import Outcome
from grpo.core.text.stats import mean
from grpo.core.train.batch.batch import Batch, own_places, score_column
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.rubric import parts
from grpo.plugins.session import MACHINE_SECONDS
from grpo.plugins.types import Completion

AGENT_MEANS = ("calls", "tokens_trained", "tokens_untrained", "model_seconds", "own_seconds")
SLOW = 0.1  # seconds from which on a call is one that may run into a limit


def session_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    """Returns means over episodes whose environment reports session times, and this machine's load."""
    graded = [each.info for each in completions if isinstance(each.info.get(MACHINE_SECONDS), int | float)]
    if not graded:
        return {}
    return {
        "sessions/zeros": mean([not any(info.get("rewards") or ()) for info in graded]),
        "time/sessions": mean([info[MACHINE_SECONDS] for info in graded]),
        "time/load": os.getloadavg()[0] / (os.cpu_count() or 1),
    }


def agent_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    """Returns means over the episodes that an agent played; empty if there is none."""
    played = [(completion, record) for completion in completions if (record := agent_of(completion.info)) is not None]
    if not played:
        return {}
    records = [record for _, record in played]
    ended = [record.exit for record in records if record.exit is not None and not record.timed_out]
    figures = {
        **{name: mean([getattr(record, name) for record in records]) for name in AGENT_MEANS},
        **{f"roots/{name}": mean([record.roots.get(name, 0) for record in records]) for name in get_args(Reason)},
        "undelivered": mean([sum(not call.delivered for call in record.tree) for record in records]),
        "refused": mean([bool(record.refused) for record in records]),
        "exits": sum(status != 0 for status in ended) / len(records),
        "timed_out": mean([record.timed_out for record in records]),
        "failed": mean([rollout.finish_reason == "error" for rollout, _ in played]),
    }
    return {f"agent/{name}": figure for name, figure in figures.items()}


def parts_of_differences(
    scores: torch.Tensor, weights: torch.Tensor, trained: torch.Tensor, group_size: int
) -> torch.Tensor:
    """Returns each reward's share of the differences in total within groups; NaN without any.

    They add up to 1; negative where a reward goes against the total. `scores`: [N, R], NaN for an abstention, which
    adds nothing. `weights`: [R]. `trained`: [N] bool, which completions are compared.
    """
    parts = (scores.nan_to_num(0.0) * weights).view(-1, group_size, len(weights))
    known = trained.view(-1, group_size, 1)
    middle = (parts * known).sum(dim=1, keepdim=True) / known.sum(dim=1, keepdim=True).clamp(min=1)
    centred = (parts - middle) * known
    total = centred.sum(dim=2, keepdim=True)
    return (centred * total).sum(dim=(0, 1)) / (total**2).sum()


def lowest_metrics(reward: BoundReward, outcomes: Sequence[Outcome]) -> Mapping[str, float]:
    """Returns the share of scores at the reward's declared lowest value, and how much longer their calls took.

    The second is NaN unless there are other scores too and the slow calls took at least SLOW seconds on average.
    """
    low = reward.spec.range[0]
    scored = [outcome for outcome in outcomes if outcome.score is not None]
    if not math.isfinite(low) or not scored:
        return {}
    lowest = [outcome.seconds for outcome in scored if outcome.score == low]
    others = [outcome.seconds for outcome in scored if outcome.score != low]
    slow = bool(others) and mean(lowest) >= SLOW if lowest else False
    return {
        f"rewards/{reward.name}/lowest": len(lowest) / len(scored),
        f"time/lowest/{reward.name}": mean(lowest) / max(mean(others), 1e-6) if slow else math.nan,
    }


def batch_metrics(batch: Batch, rewards: Sequence[BoundReward]) -> dict[str, float]:
    """Returns what the batch says about rewards; NaN for a mean of nothing."""
    totals = batch.advantages.totals
    present = totals[~totals.isnan()]
    own = {reward.name for reward in rewards}
    env_of = {part.name: reward.env for reward in rewards for part in parts(reward)}
    metrics = {
        "reward": present.mean().item() if len(present) else math.nan,
        "reward_std": batch.advantages.group_std.mean().item(),
        "frac_reward_zero_std": batch.advantages.no_signal,
        "time/generate": batch.generate_seconds,
        "time/score": batch.score_seconds,
        **{
            f"time/rewards/{name}": sum(outcome.seconds for outcome in batch.outcomes_of(name)) / processes()
            for name in batch.outcomes
        },
    }
    if any(completion.info for completion in batch.completions):
        metrics |= _turn_metrics(batch.completions) | agent_metrics(batch.completions)
        metrics |= session_metrics(batch.completions)
    if any(batch.branches):
        rows = [max(number, 1) for number in batch.branches]
        metrics |= {"rows/mean": mean(rows), "rows/most": float(max(rows))}
    exact = torch.tensor([score_column(batch.outcomes[reward.name]) for reward in rewards], dtype=torch.float64)
    scores_of = exact.to(torch.float32)
    for reward, column, whole in zip(rewards, scores_of.T.contiguous().T, exact, strict=True):
        mean_of, deviation = _moments(column)
        if not (math.isfinite(mean_of) and math.isfinite(deviation)):  # its squares are too large for 32 bits
            mean_of, deviation = _moments(whole)
        metrics |= {f"rewards/{reward.name}/mean": mean_of, f"rewards/{reward.name}/std": deviation}
    if len(rewards) > 1:
        weights = torch.tensor([reward.weight for reward in rewards], dtype=torch.float64)
        compared = batch.advantages.trained.to(exact.device)
        shares = parts_of_differences(exact.T, weights, compared, batch.group_size).tolist()
        metrics |= {f"rewards/{spec.name}/of_differences": part for spec, part in zip(rewards, shares, strict=True)}
    for reward in rewards:
        metrics |= lowest_metrics(reward, batch.outcomes[reward.name])
    for name, every in batch.outcomes.items():
        outcomes = [every[place] for place in own_places(batch.completions, env_of.get(name, ""))]
        for kind in ("abstain", "failure"):
            metrics[f"rewards/{name}/{kind}"] = mean([outcome.kind == kind for outcome in outcomes])
        if name not in own:
            scores = [outcome.score for outcome in outcomes if outcome.score is not None]
            metrics[f"rewards/{name}/mean"] = mean(scores)
        for key in sorted({key for outcome in outcomes for key in outcome.metrics or ()}):
            figures = [outcome.metrics[key] for outcome in outcomes if outcome.metrics and key in outcome.metrics]
            metrics[f"rewards/{name}/{key}"] = mean(figures)
    return metrics


def sampling_metrics(batch: Batch, size: int, *, filled: bool) -> dict[str, float]:
    """Returns refill figures and the share of wasted sampled tokens; `size`: completions of a whole step."""
    lengths = [len(completion.token_ids) for completion in batch.completions]
    wasted = sum(len(sample.rollout.completion.token_ids) for sample in batch.wasted)
    groups = batch.advantages.teaches.view(-1, batch.group_size).any(dim=1)
    taught = sum(length for number, length in enumerate(lengths) if groups[number // batch.group_size])
    every = max(sum(lengths) + wasted, 1)
    metrics = {"sampling/taught_nothing": 1 - taught / every}
    if len(batch.completions) < size:
        metrics["sampling/asked"] = len(batch.completions) / size
    if filled:
        metrics["sampling/wasted"] = wasted / every
        metrics["sampling/per_completion"] = len(batch.sampled) / len(batch.completions)
    return metrics


def _moments(scores: torch.Tensor) -> tuple[float, float]:
    mean, known = scores.nanmean(), (~scores.isnan()).sum()
    deviation = ((scores - mean) ** 2).nanmean() * (known / (known - 1)) if known > 1 else torch.tensor(math.nan)
    return mean.item(), deviation.sqrt().item()


def length_metrics(lengths: Sequence[int], ended: Sequence[bool]) -> dict[str, float]:
    """Returns the lengths of completions under TRL's names; `ended`: whether the last token is one that ends."""
    every, whole = torch.tensor(lengths), torch.tensor(ended)
    terminated = every[whole] if whole.any() else torch.zeros(1)
    return {
        "completions/mean_length": every.float().mean().item(),
        "completions/min_length": every.float().min().item(),
        "completions/max_length": every.float().max().item(),
        "completions/clipped_ratio": (~whole).float().mean().item(),
        "completions/mean_terminated_length": terminated.float().mean().item(),
        "completions/min_terminated_length": terminated.float().min().item(),
        "completions/max_terminated_length": terminated.float().max().item(),
    }


def _turn_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    count = len(completions)
    calls = [completion.info["tool_calls"] for completion in completions if "tool_calls" in completion.info]
    tools = {"tools/calls": mean(calls), "tools/callers": mean([number > 0 for number in calls])} if calls else {}
    return {
        **tools,
        "turns/mean": sum(completion.turns for completion in completions) / count,
        "turns/most": float(max(completion.turns for completion in completions)),
        "turns/failed": sum(completion.finish_reason == "error" for completion in completions) / count,
    }
