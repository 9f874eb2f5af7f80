"""Answers prompts with weights: chat messages in, completions as text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo.core.env.prompts import encode_prompts
from grpo.core.policy.load import end_ids, load_model_config, load_tokenizer
from grpo.core.policy.weights import Weights, load_weights
from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.types import SamplingParams, context_length, refuse_unsafe_rope
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Message

BATCH = 64  # completions decoded at once


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion: its text without special tokens, and whether the limit cut it."""

    text: str
    cut: bool


def refuse_long_prompts(weights: Weights, prompts: Sequence[Sequence[Message]], max_tokens: int) -> None:
    """Refuses prompts that do not fit the model's context together with the new tokens; loads only the tokenizer.

    Raises:
        UsageError: names the prompt and the remedy.
    """
    config = load_model_config(weights.base)
    refuse_unsafe_rope(config)
    context = context_length(config)
    for number, ids in enumerate(encode_prompts(load_tokenizer(weights.tokenizer_source), prompts), start=1):
        if context is not None and len(ids) + max_tokens > context:
            raise UsageError(
                f"prompt {number} has {len(ids)} tokens with its template: with {max_tokens} new ones over the "
                f"model's context of {context}. Lower --max-new-tokens to {max(context - len(ids), 0)} or shorten it."
            )


def answers(
    weights: Weights,
    prompts: Sequence[Sequence[Message]],
    *,
    samples: int,
    temperature: float,
    max_tokens: int,
    seed: int,
) -> list[list[Answer]]:
    """Returns `samples` answers for each prompt; temperature 0 is greedy.

    Raises:
        UsageError: something cannot be loaded, or a prompt does not fit.
    """
    import torch

    model, tokenizer = load_weights(weights)
    params = SamplingParams(
        max_tokens=max_tokens,
        eos_ids=end_ids(tokenizer, model),
        pad_id=tokenizer.pad_token_id,
        temperature=temperature,
    )
    torch.manual_seed(seed)
    wanted = [ids for ids in encode_prompts(tokenizer, prompts) for _ in range(samples)]
    found: list[Answer] = []
    for first in range(0, len(wanted), BATCH):
        sampled = sample(model, wanted[first : first + BATCH], params)
        texts = tokenizer.batch_decode([s.token_ids for s in sampled], skip_special_tokens=True)
        found += [Answer(text, s.finish_reason == "length") for text, s in zip(texts, sampled, strict=True)]
    return [found[i : i + samples] for i in range(0, len(found), samples)]
