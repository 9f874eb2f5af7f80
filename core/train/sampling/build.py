"""Builds the sampler of a run: from the policy as it is, ahead of time, or part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase

from grpo.core.env.replacement_rows import ReplacementRows
from grpo.core.plan import Plan
from grpo.core.rollout.limits import tolerance_of
from grpo.core.rollout.players import players_of
from grpo.core.rollout.synced import SyncedRollouts
from grpo.core.rollout.turns.partial import PartialRollouts
from grpo.core.rollout.turns.play import Plays
from grpo.core.rollout.types import Rollouts, sampling_params
from grpo.core.scoring.early import nothing_begun
from grpo.core.train.batch.tensors import Tensors
from grpo.core.train.sampling.ahead import AheadSampler
from grpo.core.train.sampling.ahead_queue import AheadQueue, FrozenCopies
from grpo.core.train.sampling.partial import Part, PartialSampler
from grpo.core.train.sampling.prompts import Prompts
from grpo.core.train.sampling.refill import Refiller
from grpo.core.train.sampling.sampler import PolicySampler
from grpo.core.train.types import BatchScoring, EpisodesOf, Sampler

if TYPE_CHECKING:
    from grpo.core.rollout.agents.open import AgentSide


@dataclass(frozen=True, slots=True)
class PolicyAccess:
    """Reaches the policy that trains."""

    rollouts: SyncedRollouts  # the backend and the policy as it is
    unwrapped: Callable[[], Any]  # returns the policy without what wraps it in training
    # enters the arithmetic of training with a frozen copy of the policy
    computing: Callable[[Any], AbstractContextManager[Any]]
    attach: Callable[[Any], None]  # gives a frozen copy the output layer of training
    logps: Callable[[Any, Tensors], torch.Tensor]  # returns the log-probabilities that a model gives rollouts
    probe: Callable[[Tensors], torch.Tensor]  # returns those of the policy between two steps
    gather: Callable[[torch.Tensor], torch.Tensor]
    device: torch.device


def turn_of(plan: Plan) -> RLock | None:
    """Returns the lock under which concurrent samplers share the backend; None without any."""
    return RLock() if plan.config.rollout.ahead > 1 else None


def build_sampler(
    plan: Plan,
    policy: PolicyAccess,
    backend: Rollouts,
    turn: RLock | None,
    tokenizer: PreTrainedTokenizerBase,
    end_ids: tuple[int, ...],
    scoring: BatchScoring,
    prompts: Prompts,
    episodes_of: EpisodesOf,
    agents: AgentSide | None = None,
) -> Sampler:
    """Builds the sampler of a run. `turn`: see `turn_of`."""
    config = plan.config
    rollout, ahead = config.rollout, config.rollout.ahead
    seed = config.seed if backend.exact else None
    tolerance = tolerance_of(config)
    replacements = ReplacementRows(plan.envs, config.seed, None if plan.sampler is None else prompts.chosen)
    fills = rollout.refill or rollout.dynamic
    fill = Refiller(config, plan.rewards, plan.advantage, scoring, replacements).filled if fills else None
    own = deepcopy(tokenizer) if ahead > 1 else tokenizer  # a tokenizer is no two threads'
    turn_by_turn = {} if agents is not None else players_of(plan.envs, rollout, own)
    players: Mapping[str, Plays | None] = turn_by_turn
    if agents is not None:
        players = dict.fromkeys((part.name for part in plan.envs), agents.player())
    params = sampling_params(rollout, end_ids, tokenizer.pad_token_id)
    sampler = PolicySampler(policy.rollouts, players, own, params, scoring.begin, seed, fill)
    if rollout.partial:
        return PartialSampler(
            sampler,
            PartialRollouts(turn_by_turn, own, params),
            Part(rollout.partial, config.train.prompts_per_step, config.train.group_size),
            seed=seed,
            probe=policy.probe,
            tolerance=tolerance,
            device=policy.device,
            episode_at=replacements.at,
            episodes_of=episodes_of,
        )
    if ahead == 1:
        return AheadSampler(sampler, policy.probe, tolerance, policy.device, policy.gather, replacements.at)
    if ahead:

        def sampler_of(version: Any) -> PolicySampler:
            synced = SyncedRollouts(backend, partial(policy.computing, version), turn)
            return PolicySampler(synced, players, own, params, nothing_begun, None)

        return AheadQueue(
            sampler,
            sampler_of,
            FrozenCopies(policy.unwrapped, policy.attach),
            policy.logps,
            depth=ahead,
            seed=config.seed,
            tokenizer=tokenizer,
            tolerance=tolerance,
            device=policy.device,
            episode_at=replacements.at,
        )
    return sampler
