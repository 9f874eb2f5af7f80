"""Builds the training batch of one generation, its advantages and its rows, and stops a run whose batch is unusable."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from grpo.core.config.sections import LossSection
from grpo.core.env.replacement_rows import Place
from grpo.core.record.agent_calls import KEY
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.advantages.compute import Advantages, group_advantages
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
    why: tuple[str | None, ...] = ()  # the verifiers' reasons, where they gave one; empty before too

    @property
    def sampled(self) -> tuple[Completion, ...]:
        """Every completion that was sampled for it, the wasted ones last."""
        return (*self.completions, *(sample.rollout.completion for sample in self.wasted))

    def outcomes_of(self, name: str) -> list[Outcome]:
        """Returns a reward's outcome of each completion that was sampled for it."""
        return [*self.outcomes[name], *(sample.outcomes[name] for sample in self.wasted)]


def advantages_of(
    outcomes: Mapping[str, Sequence[Outcome]],
    rewards: Sequence[BoundReward],
    group_size: int,
    advantage: BoundAdvantage,
    device: torch.device,
    turns: Sequence[int] | None = None,
) -> Advantages:
    """Computes the advantages of a batch; not finite where rewards overflow (`refuse_overflow`).

    A completion that any reward failed on is failed. `turns`: the number of each rollout; None: turns do not count.
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
    """Returns what each turn earned, N times T times R, NaN after the last turn; 0 without turn scores."""
    longest = max(1, *turns) if turns else 1
    nothing = [math.nan] * len(rewards)
    earned = []
    for number, count in enumerate(turns):
        scores = [outcomes[reward.name][number].turns or (0.0,) * count for reward in rewards]
        earned.append([*map(list, zip(*scores, strict=True))] + [nothing] * (longest - count))
    return earned


def refuse_overflow(batch: Batch, rewards: Sequence[BoundReward], advantage: BoundAdvantage) -> None:
    """Raises RunError where advantages are not finite, mostly as squares of rewards overflow."""
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
    """Returns which completions are in the loss, [N] bool; unlike TRL's mask, also those that a turn limit ended."""
    if not loss.mask_truncated_completions:
        return batch.advantages.trained
    cut = [completion.finish_reason == "length" for completion in batch.completions]
    return batch.advantages.trained & ~torch.tensor(cut, device=batch.advantages.trained.device)


def score_column(outcomes: Sequence[Outcome]) -> list[float]:
    """Returns the scores of one reward, NaN where there is none."""
    return [math.nan if outcome.score is None else outcome.score for outcome in outcomes]


def stop_on_failures(batch: Batch, rewards: Sequence[BoundReward], limit: float, run: str = "RUN") -> None:
    """Raises RunError when more than `limit` of the rollouts fail in the environment or a reward (or rubric component).

    The error names the environment or the reward, its distribution and the first reason. `run`: its directory.
    """
    sampled, show = batch.sampled, f"grpo show {shlex.quote(str(run))}"
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
                f"`{show}` has them. Fix the {'agent or the ' * agents}environment, then resume the run."
            )
    for reward in [part for outer in rewards for part in reversed(list(parts(outer)))]:
        outcomes = batch.outcomes_of(reward.name)
        failures = [outcomes[i] for i in ended if outcomes[i].kind == "failure"]
        count = len({*ended} & {*own_places(sampled, reward.env)})
        if len(failures) > limit * count:
            raise RunError(
                f"reward '{reward.name}' ({reward.distribution}) failed on {len(failures)} of {count} completions in "
                f"step {batch.step}, over failures.stop_share {limit:g}. The first reason: "
                f"{_sentence(failures[0].reason)} `{show} --failures` has them. Fix the reward, then "
                "resume the run."
            )


def _sentence(reason: object) -> str:
    return f"{str(reason).rstrip('.')}."


def own_places(completions: Sequence[Completion], env: str) -> list[int]:
    """Returns the places of an environment's completions; of all of them for ""."""
    return [place for place, completion in enumerate(completions) if env in ("", completion.env)]
