"""Collects planning's facts about machine, model and plugins: `Facts` before rows, `ModelFacts` before weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo.core.config.schema import RunConfig
from grpo.core.env.mixture import bound_envs
from grpo.core.policy.chat_template import Value
from grpo.core.policy.load import PolicySource, load_model_config, load_tokenizer
from grpo.core.policy.weights import training_source
from grpo.core.processes.rank import count
from grpo.core.rollout.types import context_length, refuse_miscomputed, refuse_no_decoder, refuse_unsafe_rope
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.host import Host

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Facts:
    """What the names of a configuration mean."""

    source: PolicySource
    envs: tuple[BoundEnv, ...]
    host: Host
    processes: int

    @property
    def shares(self) -> tuple[float, ...]:
        """Each environment's share of all prompts."""
        total = sum(env.weight for env in self.envs)
        return tuple(env.weight / total for env in self.envs)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model without its weights."""

    config: Any
    tokenizer: PreTrainedTokenizerBase  # with left padding, a pad token and a chat template
    tokenizer_source: str  # where that comes from, for messages

    @property
    def context(self) -> int | None:
        """Its context in tokens, or None when its configuration does not say."""
        return context_length(self.config)

    def room(self, prompt: int) -> int | None:
        """Returns the tokens of its context beside a prompt of so many, or None when the context is unknown."""
        return None if self.context is None else self.context - prompt


def gather_facts(config: RunConfig, host: Host) -> Facts:
    """Looks up what a configuration names, before rows are read. Raises UsageError for missing models or plugins."""
    facts = Facts(training_source(config.model), bound_envs(config, host), host, count())
    host.rewards(config.rewards)
    if config.verifier is not None:
        host.verifier(config.verifier)
    if config.sampler is not None:
        host.sampler(config.sampler)
    return facts


def read_model(
    source: str, tokenizer_source: str | None = None, variables: Mapping[str, Value] | None = None
) -> ModelFacts:
    """Reads a model's configuration and tokenizer, and no weights. `tokenizer_source`: None for the same.

    Raises UsageError if one cannot be loaded, or it is no causal model that computes a row alike in any batch.
    """
    config = load_model_config(source)
    refuse_unsafe_rope(config)
    refuse_no_decoder(config)
    refuse_miscomputed(config)
    tokenizer_source = tokenizer_source or source
    return ModelFacts(config, load_tokenizer(tokenizer_source, variables), tokenizer_source)
