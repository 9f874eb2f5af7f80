"""Builds the training batch of one generation: advantages, metrics and verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from grpo.core.config.sections import LossSection
from grpo.core.env.replacement_rows import Place
from grpo.core.processes.rank import count as processes
from grpo.core.record.agent_calls import KEY
from grpo.core.scoring.outcome import Outcome
from grpo.core.text.stats import mean
from grpo.core.train.advantages.compute import Advantages, group_advantages
from grpo.core.train.batch.agent_metrics import agent_metrics
from grpo.core.train.batch.reward_stats import lowest_metrics, parts_of_differences
from grpo.core.train.batch.session_metrics import session_metrics
from grpo.core.train.types import Wasted
from grpo.plugins._spec.binding import BoundAdvantage, BoundReward
from grpo.plugins.errors import RunError
from grpo.plugins.rubric import parts
from grpo.plugins.types import Completion


@dataclass(frozen=True, slots=True)
class Batch:
    """One generation, gathered from all processes."""

    step: int  # the first optimizer step that trains on it, from 1
    completions: tuple[Completion, ...]  # N of them; members of a group are adjacent
    # reward name to N outcomes; the components of a rubric are among them, as `rubric.component`
    outcomes: Mapping[str, Sequence[Outcome]]
    advantages: Advantages
    group_size: int
    # generate_seconds, score_seconds: wall time on this process
    generate_seconds: float
    score_seconds: float
    wasted: tuple[Wasted, ...] = ()  # what was sampled beside them in vain, of all processes
    places: tuple[Place, ...] = ()  # the environment of each completion, and the number of its row there
    sampled_by: tuple[tuple[tuple[int, int], ...], ...] = ()  # of each completion, as of a `Trajectory`
    branches: tuple[int, ...] = ()  # how many rows each completion is as a tree, 0 where it is none
    # whether each completion is right, None where nobody knows; empty before the verifiers judged them
    right: tuple[bool | None, ...] = ()

    @property
    def sampled(self) -> tuple[Completion, ...]:
        """Every completion that was sampled for it, those in vain last."""
        return (*self.completions, *(sample.rollout.completion for sample in self.wasted))

    def outcomes_of(self, name: str) -> list[Outcome]:
        """Returns what a reward said of each completion that was sampled for it."""
        return [*self.outcomes[name], *(sample.outcomes[name] for sample in self.wasted)]


def advantages_of(
    outcomes: Mapping[str, Sequence[Outcome]],
    rewards: Sequence[BoundReward],
    group_size: int,
    advantage: BoundAdvantage,
    device: torch.device,
    turns: Sequence[int] | None = None,
) -> Advantages:
    """Computes the advantages of a batch; a completion that any reward failed on is failed.

    They are no numbers where rewards overflow, see `refuse_overflow`.

    Args:
        outcomes: reward name to N outcomes.
        turns: how many each rollout has; None: they do not count.
    """
    columns = [score_column(outcomes[reward.name]) for reward in rewards]
    kinds = zip(*([outcome.kind for outcome in outcomes[reward.name]] for reward in rewards), strict=True)
    return group_advantages(
        torch.tensor(columns, dtype=torch.float64, device=device).T,
        torch.tensor(["failure" in row for row in kinds], device=device),
        torch.tensor([reward.weight for reward in rewards], dtype=torch.float64, device=device),
        group_size,
        advantage,
        None
        if turns is None
        else torch.tensor(_each_turn(outcomes, rewards, turns), dtype=torch.float64, device=device),
    )


def _each_turn(
    outcomes: Mapping[str, Sequence[Outcome]], rewards: Sequence[BoundReward], turns: Sequence[int]
) -> list[list[list[float]]]:
    """Returns what each turn earned of each score, N times T times R, NaN after the last turn.

    A reward that says nothing of turns, or has no score, earned 0 in each; the rest of its score is added elsewhere.
    """
    longest = max(1, *turns) if turns else 1
    nothing = [math.nan] * len(rewards)
    earned = []
    for number, count in enumerate(turns):
        scores = [outcomes[reward.name][number].turns or (0.0,) * count for reward in rewards]
        earned.append([*map(list, zip(*scores, strict=True))] + [nothing] * (longest - count))
    return earned


def refuse_overflow(batch: Batch, rewards: Sequence[BoundReward], advantage: BoundAdvantage) -> None:
    """Stops a run whose advantages are no numbers, mostly because rewards are so large that their squares overflow.

    Raises:
        RunError: names the largest score, or the plugin that makes no numbers of scores that can be squared.
    """
    advantages = batch.advantages
    overflow = advantages.totals.isinf().any() or not advantages.group_std.isfinite().all()
    if not overflow and not advantages.values.isfinite().all():
        raise RunError(
            f"advantage '{advantage.name}' ({advantage.distribution}) returned NaN or infinity for completions that "
            f"have a total. See for which with: grpo plugins check advantage:{advantage.name}"
        )
    if overflow:
        scores = (score for reward in rewards for score in score_column(batch.outcomes[reward.name]))
        largest = max((abs(score) for score in scores if not math.isnan(score)), default=0.0)
        raise RunError(
            f"the rewards of a step overflow: the largest score is {largest:.3g}, before weights. Scale the reward, or "
            "its weight, to numbers that can be squared."
        )


def trained_of(batch: Batch, loss: LossSection) -> torch.Tensor:
    """Returns which completions are in the loss, [N] bool.

    TRL's own masking looks for an end token, which a rollout has that a budget of turns ended.
    """
    if not loss.mask_truncated_completions:
        return batch.advantages.trained
    cut = [completion.finish_reason == "length" for completion in batch.completions]
    return batch.advantages.trained & ~torch.tensor(cut, device=batch.advantages.trained.device)


def score_column(outcomes: Sequence[Outcome]) -> list[float]:
    """Returns the scores of one reward, NaN where there is none."""
    return [math.nan if outcome.score is None else outcome.score for outcome in outcomes]


def stop_on_failures(batch: Batch, rewards: Sequence[BoundReward], limit: float) -> None:
    """Stops a run whose environment or rewards fail too often.

    Args:
        rewards: those that scored it; the components of rubrics are looked at too, and named before their rubric.
        limit: the share of rollouts that the environment may fail on, and of those that came to an end, one reward.

    Raises:
        RunError: names the environment or the reward, its distribution and the first reason.
    """
    sampled = batch.sampled
    ended = [number for number, completion in enumerate(sampled) if completion.finish_reason != "error"]
    for env in dict.fromkeys(completion.env for completion in sampled):
        own = [completion for completion in sampled if completion.env == env]
        failed = [completion for completion in own if completion.finish_reason == "error"]
        if len(failed) > limit * len(own):
            agents = KEY in failed[0].info
            where = f"with their agent on '{env}'" if agents else f"in their environment '{env}'"
            raise RunError(
                f"{len(failed)} of {len(own)} rollouts of step {batch.step} failed {where}, over "
                f"failures.stop_share {limit:g}. The first reason: {_sentence(failed[0].info.get('failure'))} "
                f"`grpo show RUN` has them. Fix the {'agent' if agents else 'environment'}, then resume the run."
            )
    for reward in [part for outer in rewards for part in reversed(list(parts(outer)))]:
        outcomes = batch.outcomes_of(reward.name)
        failures = [outcomes[i] for i in ended if outcomes[i].kind == "failure"]
        count = len({*ended} & {*_own(sampled, reward.env)})
        if len(failures) > limit * count:
            raise RunError(
                f"reward '{reward.name}' ({reward.distribution}) failed on {len(failures)} of {count} completions in "
                f"step {batch.step}, over failures.stop_share {limit:g}. The first reason: "
                f"{_sentence(failures[0].reason)} `grpo show RUN --failures` has them. Fix the reward, then "
                "resume the run."
            )


def _sentence(reason: object) -> str:
    return f"{str(reason).rstrip('.')}."


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
        outcomes = [every[place] for place in _own(batch.completions, env_of.get(name, ""))]
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
    """Returns which share of all sampled tokens taught nothing, and what was sampled to fill the batch up.

    Args:
        size: completions of a step that asks all prompts that it may.

    A token taught nothing where its group has no advantages, or where it was sampled in vain.
    """
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
    """Returns mean and standard deviation of the scores that are no NaN, [N]; the deviation of one score is NaN."""
    mean, known = scores.nanmean(), (~scores.isnan()).sum()
    deviation = ((scores - mean) ** 2).nanmean() * (known / (known - 1)) if known > 1 else torch.tensor(math.nan)
    return mean.item(), deviation.sqrt().item()


def length_metrics(lengths: Sequence[int], ended: Sequence[bool]) -> dict[str, float]:
    """Returns what a batch says about the lengths of its completions, under TRL's names.

    Args:
        lengths: tokens that the policy chose, of each rollout.
        ended: whether its last token is one that ends.
    """
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


def _own(completions: Sequence[Completion], env: str) -> list[int]:
    """Returns the places of an environment's completions; of all of them for ""."""
    return [place for place, completion in enumerate(completions) if env in ("", completion.env)]


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
