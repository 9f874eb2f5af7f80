"""Samples answers to chat messages from weights and returns them as texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase

from grpo.core.config.schema import RunConfig
from grpo.core.env.episodes import START_SECONDS, episodes_of
from grpo.core.env.mixture import with_dataset
from grpo.core.env.processes import starting_place
from grpo.core.env.prompts import encode_prompts
from grpo.core.planning.facts import ModelFacts
from grpo.core.policy.load import end_ids
from grpo.core.policy.weights import Weights, load_weights
from grpo.core.record.browse import read_step
from grpo.core.record.run_dir import rollout_steps
from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.types import SamplingParams
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.types import Message

BATCH = 64  # completions decoded at once

EMBEDDED_ENV = "gsm8k"  # the environment that the embedded model was taught on
QUESTION = 8  # characters; a shorter column that occurs in the message is hardly its question


def encode_fitting(model: ModelFacts, prompts: Sequence[Sequence[Message]], max_tokens: int) -> list[list[int]]:
    """Returns the tokens of prompts; UsageError for one that does not fit the context with the new tokens."""
    context, encoded = model.context, encode_prompts(model.tokenizer, prompts)
    number, longest = max(enumerate(map(len, encoded), start=1), key=lambda numbered: numbered[1])
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
) -> list[list[tuple[str, bool]]]:
    """Returns `samples` answers for each prompt in tokens (temperature 0: greedy); calls `loaded` before it samples.

    An answer is its text without special tokens, and whether the limit cut it.
    """
    import torch

    model = load_weights(weights)
    loaded()
    params = SamplingParams(
        max_tokens=max_tokens, eos_ids=end_ids(tokenizer, model), pad_id=tokenizer.pad_token_id, temperature=temperature
    )
    torch.manual_seed(seed)
    wanted = [ids for ids in prompts for _ in range(samples)]
    replies: list[tuple[str, bool]] = []
    for first in range(0, len(wanted), BATCH):
        sampled = sample(model, wanted[first : first + BATCH], params)
        texts = tokenizer.batch_decode([s.token_ids for s in sampled], skip_special_tokens=True)
        replies += [(text, s.finish_reason == "length") for text, s in zip(texts, sampled, strict=True)]
    return [replies[i : i + samples] for i in range(0, len(replies), samples)]


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt of the environment, and the columns that it was made from."""

    prompt: Sequence[Message] = (Message(role="user", content=""),)
    columns: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, text: str) -> list[Message]:
        """Returns the prompt with the text for the longest column in its last user message, or for all of it."""
        messages = list(self.prompt)
        asked = [place for place, message in enumerate(messages) if message["role"] == "user"]
        if not asked:
            return [*messages, Message(role="user", content=text)]
        content = messages[asked[-1]]["content"]
        texts = [v for v in self.columns.values() if isinstance(v, str) and len(v) >= QUESTION and v in content]
        question = max(texts, key=len, default=content)
        changed = content.replace(question, text, 1) if question else text
        messages[asked[-1]] = Message(role="user", content=changed)
        return messages


def example_of(weights: Weights, env: str | None, host: Host) -> Example:
    """Returns the prompt to imitate: the named environment's, the run's, or a bare user message. Raises UsageError."""
    if env is None and weights.run is not None and (steps := rollout_steps(weights.run)):
        first = read_step(weights.run, steps[0])[1][0]
        return Example(first.prompt, first.columns)
    config = weights.config
    if env is not None:
        # Only the layout of the prompt is wanted, so the rows are those that the environment has by default.
        config = RunConfig(env=env)
    elif config is None:
        if not weights.embedded:
            return Example()
        config = RunConfig(env=EMBEDDED_ENV)
    bound = with_dataset(host.env(config.envs[0]), config)
    (episode,) = episodes_of(bound, "train", limit=1, unbounded=1, opened=starting_place(bound, 0, START_SECONDS))
    return Example(episode.prompt, episode.row)
