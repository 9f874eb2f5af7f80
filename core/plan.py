"""Defines a `Plan`: everything that planning decided about a run, which can now start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grpo.core.config.settings import Settings
from grpo.core.env.episodes import Episode
from grpo.core.env.mixture import RunEnv
from grpo.core.policy.load import PolicySource
from grpo.core.scoring.known import Canary
from grpo.plugins._spec.binding import BoundAdvantage, BoundAgent, BoundLoss, BoundReward, BoundSampler, BoundVerifier

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that can start."""

    config: Settings  # the configuration; no value that the run needs is None any more
    source: PolicySource
    model_config: Any = field(compare=False, repr=False)
    tokenizer: PreTrainedTokenizerBase = field(compare=False, repr=False)
    envs: tuple[RunEnv, ...]
    loss: BoundLoss
    advantage: BoundAdvantage
    train: Sequence[Episode]  # the episodes of all of them, one environment's after the other's
    parameters: int
    longest_prompt: int  # in tokens, over both splits
    disk_bytes: int  # what checkpoints and the final model take
    processes: int
    canaries: tuple[Canary, ...] = ()
    # chooses the rows of each step; None: they come in an order that is fixed before
    sampler: BoundSampler | None = None
    agent: BoundAgent | None = None  # the program that answers the environments' tasks; None: the policy answers itself
    notes: tuple[str, ...] = ()  # what the user should know about the model and the environments

    @property
    def name(self) -> str:
        return "+".join(part.name for part in self.envs)

    @property
    def rewards(self) -> tuple[BoundReward, ...]:
        """The rewards of all environments, with options, weights and names."""
        return tuple(reward for part in self.envs for reward in part.rewards)

    @property
    def verifiers(self) -> tuple[BoundVerifier, ...]:
        """What decides accuracy; at most one for each environment."""
        return tuple(part.verifier for part in self.envs if part.verifier is not None)

    @property
    def batch_size(self) -> int:
        """Completions per generation, over all processes."""
        return self.config.train.prompts_per_step * self.config.train.group_size

    @property
    def longest_sampled(self) -> int:
        """The most tokens that the policy chooses in one rollout."""
        return self.config.rollout.max_completion_length * self.config.rollout.turns

    @property
    def accumulation(self) -> int:
        """Micro batches per optimizer step and process."""
        return self.batch_size // (self.config.train.micro_batch_size * self.processes)
