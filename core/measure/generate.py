"""Answers prompts with weights: chat messages in, completions as text out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo.core.env.prompts import encode_prompts
from grpo.core.planning.facts import ModelFacts
from grpo.core.policy.load import end_ids
from grpo.core.policy.weights import Weights, load_weights
from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.types import SamplingParams
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH = 64  # completions decoded at once


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion: its text without special tokens, and whether the limit cut it."""

    text: str
    cut: bool


def encode_fitting(model: ModelFacts, prompts: Sequence[Sequence[Message]], max_tokens: int) -> list[list[int]]:
    """Returns the tokens of prompts; UsageError for one that does not fit the context with the new tokens."""
    context, encoded = model.context, encode_prompts(model.tokenizer, prompts)
    number, longest = max(enumerate(map(len, encoded), start=1), key=lambda one: one[1])
    if context is not None and longest + max_tokens > context:
        lower = f"Lower --max-new-tokens to {context - longest} or shorten it" if longest < context else "Shorten it"
        raise UsageError(
            f"prompt {number} has {longest} tokens with its template: with {max_tokens} new ones over the model's "
            f"context of {context}. {lower}."
        )
    return encoded


def answers(
    weights: Weights,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    *,
    samples: int,
    temperature: float,
    max_tokens: int,
    seed: int,
    loaded: Callable[[], None],
) -> list[list[Answer]]:
    """Returns `samples` answers for each prompt in tokens (temperature 0: greedy); calls `loaded` before it samples."""
    import torch

    model = load_weights(weights)
    loaded()
    params = SamplingParams(
        max_tokens=max_tokens, eos_ids=end_ids(tokenizer, model), pad_id=tokenizer.pad_token_id, temperature=temperature
    )
    torch.manual_seed(seed)
    wanted = [ids for ids in prompts for _ in range(samples)]
    found: list[Answer] = []
    for first in range(0, len(wanted), BATCH):
        sampled = sample(model, wanted[first : first + BATCH], params)
        texts = tokenizer.batch_decode([s.token_ids for s in sampled], skip_special_tokens=True)
        found += [Answer(text, s.finish_reason == "length") for text, s in zip(texts, sampled, strict=True)]
    return [found[i : i + samples] for i in range(0, len(found), samples)]
