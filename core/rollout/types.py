"""Declares the interface of rollout backends: how tokens are chosen, what is returned, what is refused.

Nothing is truncated: a prompt plus the new tokens that does not fit the context is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from grpo.core.config.settings import RolloutSettings
from grpo.core.rollout.draws import drawn_seed
from grpo.plugins.errors import UsageError

PromptIds = Sequence[Sequence[int]]  # the token ids of several prompts
LEFT_TO_RIGHT = frozenset({"gpt_neox", "gpt_neox_japanese"})  # types that say is_decoder=false and do not mean it
BOTH_WAYS = frozenset({"cpmant", "flaubert", "xlm", "xlnet"})  # types that read so, and do not say it
MISCOMPUTED = frozenset({"moshi", "prophetnet"})  # types whose decoders give other tokens from a cache than alone


@dataclass(frozen=True, slots=True)
class SamplingParams:
    max_tokens: int
    eos_ids: tuple[int, ...]  # any of these tokens ends a completion and is part of it
    pad_id: int  # fills the left of short prompts
    temperature: float = 1.0  # divides the logits; 0 takes the most probable token
    # top_p, top_k, min_p: the usual filters; 1.0, 0 and 0.0 switch them off
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    # of the random numbers of each completion (core/rollout/draws.py), for who samples with the policy itself; None:
    # drawn from torch's global generator
    keys: tuple[int, ...] | None = None
    seed: int | None = None  # of an engine's random numbers; None: drawn where it is needed (`drawn_seed`)
    most_probable: int = 0  # how many tokens an engine also gives the log-probabilities of, the most probable ones

    def of(self, places: Sequence[int], turn: int = 0) -> SamplingParams:
        """Returns those of some of the prompts, in one of their turns."""
        return self if self.keys is None else replace(self, keys=tuple(self.keys[place] + turn for place in places))

    def seeded(self) -> int:
        """Returns the seed, drawn where none is set."""
        return drawn_seed() if self.seed is None else self.seed


@dataclass(frozen=True, slots=True)
class Sampled:
    token_ids: tuple[int, ...]  # the new tokens, with the end token where there is one
    # log-probability of each under softmax(logits / temperature), before any filter, in nats
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]  # "stop" when an end token was sampled, else "length"
    # for each, the tokens that were most probable in its place with their log-probabilities, where they were asked for
    most_probable: tuple[tuple[tuple[int, float], ...], ...] = ()


def sampling_params(rollout: RolloutSettings, eos_ids: Sequence[int], pad_id: int) -> SamplingParams:
    """Returns how tokens are chosen in training; the length is that of one turn."""
    return SamplingParams(
        max_tokens=rollout.max_completion_length,
        eos_ids=tuple(eos_ids),
        pad_id=pad_id,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        min_p=rollout.min_p,
    )


OnDone = Callable[[Sequence[int], Sequence[Sampled]], None]  # the numbers of prompts, and their completions


class Rollouts(Protocol):
    """A rollout backend: token ids in, sampled token ids and their log-probabilities out; `sync` comes before a batch.

    Randomness comes from torch's global generator, which checkpoints store.
    """

    exact: bool  # its log-probabilities are computed by the training model itself; else they are compared and corrected

    def sync(self, model: Any, *, again: bool = False) -> Mapping[str, float]:
        """Makes the backend sample from the unwrapped policy as its weights are now; returns metrics of this sync.

        `again`: what was synced before is in doubt: send everything anew. Raises RunError, which names the parameters
        that differ, if it fails.
        """

    def generate(self, prompts: PromptIds, params: SamplingParams, on_done: OnDone | None = None) -> list[Sampled]:
        """Samples one completion for each prompt; equal neighbours share the work on their prompt.

        `on_done`: told of completions as they end, in any order. Raises UsageError for an empty prompt, or one that
        does not fit the context together with the new tokens.
        """

    def turns(self) -> Callable[[PromptIds, SamplingParams], list[Sampled]]:
        """Returns what samples the turns of one batch of rollouts, between two syncs, one after the other."""

    def differing(self, model: Any) -> list[str]:
        """Returns the names of the parameters that the backend serves with other values than the model's."""

    def rest(self) -> None:
        """Gives memory back until the next sync, where the backend can."""

    def close(self) -> None:
        """Stops what was started for it."""


def context_length(config: Any) -> int | None:
    """Returns the model's context in tokens, or None when its configuration does not say."""
    text = config.get_text_config()
    length = getattr(text, "max_position_embeddings", None)
    return int(length) if length and length > 0 else None


def refuse_unsafe_rope(config: Any) -> None:
    """Refuses RoPE variants whose frequencies depend on the longest row of a batch. Raises UsageError."""
    text = config.get_text_config()
    scaling = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    # One table, or one for each type of layer.
    tables = [scaling, *(table for table in scaling.values() if isinstance(table, dict))]
    unsafe = {table.get("rope_type", table.get("type")) for table in tables} & {"dynamic", "longrope"}
    if unsafe:
        raise UsageError(
            f"the model uses '{unsafe.pop()}' RoPE scaling, whose positions depend on the longest row of a batch: "
            "sampling and training would disagree without an error. Use a model with plain, linear, llama3 or yarn "
            "RoPE."
        )


def refuse_no_decoder(config: Any) -> None:
    """Refuses a model that reads in both directions."""
    encodes = getattr(config, "is_decoder", None) is False and not getattr(config, "is_encoder_decoder", False)
    if (encodes and config.model_type not in LEFT_TO_RIGHT) or config.model_type in BOTH_WAYS:
        raise UsageError(
            f"a model of the type '{config.model_type}' reads a text in both directions and "
            "cannot continue one. Choose a causal language model."
        )


def refuse_miscomputed(config: Any) -> None:
    """Refuses a model that does not compute one thing in a batch, from a cache and alone. Raises UsageError."""
    if config.model_type in MISCOMPUTED:
        raise UsageError(
            f"a model of the type '{config.model_type}' computes other probabilities when it samples than when it "
            "trains (docs/models.md). Choose another causal language model."
        )


def refuse_unfit(prompts: PromptIds, params: SamplingParams, limit: int | None) -> None:
    """Refuses prompts that are empty or that do not fit, with the new tokens, into `limit` tokens (None: no limit)."""
    longest = max(len(prompt) for prompt in prompts)
    if min(len(prompt) for prompt in prompts) == 0:
        raise UsageError("an empty prompt cannot be completed: there is no token to start from")
    if limit is not None and longest + params.max_tokens > limit:
        lower = f"Lower rollout.max_completion_length to {limit - longest}"
        raise UsageError(
            f"a prompt of {longest} tokens and {params.max_tokens} new ones do not fit the model's context of {limit}. "
            f"{lower if longest < limit else 'Shorten the prompt'}."
        )


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def runs(prompts: PromptIds) -> tuple[list[Sequence[int]], list[int]]:
    """Collapses equal neighbours: the distinct prompts and how many completions each one wants."""
    unique: list[Sequence[int]] = []
    copies: list[int] = []
    for prompt in prompts:
        if unique and list(unique[-1]) == list(prompt):
            copies[-1] += 1
        else:
            unique.append(prompt)
            copies.append(1)
    return unique, copies
